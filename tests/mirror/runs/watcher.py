"""Looks at a mirror again and again, as another machine would, until it is finished or told to end.

Prints a JSON line for every state that differs from the one before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mirror_audit import check_mirror

from resumerge.mirror.stores.folder import FolderStore


def watch(folder: Path) -> None:
    before = None
    looks = 0
    while True:
        found = check_mirror(FolderStore(folder))
        looks += 1
        told = {
            "state": found.state,
            "files": len(found.files),
            "snapshot": found.snapshot.name if found.snapshot else None,
            "problems": dict(found.problems),
        }
        if told != before:
            print(json.dumps({**told, "looks": looks}), flush=True)
            before = told
        if found.state == "finished":
            return


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
