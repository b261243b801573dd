"""Giving up a run: its output files and its ledger go, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from resumerge.engine.files import PARTIAL
from resumerge.ledger import Ledger
from resumerge.storage import Storage


def discard(ledger: Ledger, folder: Path, out: Path, storage: Storage) -> None:
    """Remove what a run wrote: its shards, the files beside them, and the run's folder.

    Files that the run did not write are left, and the output folder with them.
    """
    written = ledger.written_names()
    for name in written:
        for path in (out / name, out / (name + PARTIAL)):
            storage.remove(path)
    for name in {str(Path(name).parent) for name in written} - {"."}:
        if (out / name).is_dir() and not any((out / name).iterdir()):
            (out / name).rmdir()
    shutil.rmtree(folder)
