"""Running mergekit 0.1.5's own command on many recipes in one process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_BESIDE = Path(sys.executable).with_name("mergekit-yaml")
MERGEKIT = str(_BESIDE) if _BESIDE.exists() else shutil.which("mergekit-yaml")

_RUN_ALL = """
import json, runpy, sys
script, names = sys.argv[1], json.loads(sys.argv[2])
for name in names:
    sys.argv = [script, f"{name}.yaml", f"{name}.mergekit", "--no-copy-tokenizer",
                "--no-write-model-card", "--random-seed", "1"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
"""


def run_mergekit(folder: Path, recipes: Mapping[str, str]) -> None:
    """Merge each recipe into ``folder/NAME.mergekit``; starting takes longer than a merge."""
    assert MERGEKIT is not None
    for name, text in recipes.items():
        (folder / f"{name}.yaml").write_text(text)
    python = re.match(rb"#!(\S+)", Path(MERGEKIT).read_bytes())
    subprocess.run(
        [python[1] if python else sys.executable, "-c", _RUN_ALL, MERGEKIT, json.dumps([*recipes])],
        cwd=folder,
        check=True,
        capture_output=True,
    )
