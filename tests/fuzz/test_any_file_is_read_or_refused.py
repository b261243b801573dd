"""Promise: commands end with 0, 2 or 75 and in limited time and memory, whatever a file contains.

`make fuzz` draws more cases.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fuzz.kinds import KINDS

ROOT = Path(__file__).parents[2]
SEED = 1


def test_a_few_cases_of_every_kind(tmp_path: Path, soak: bool) -> None:
    cases = 20 if soak else 2
    chosen = ["--seed", str(SEED), "--cases", str(cases)]
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", *chosen],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(KINDS) * cases} cases" in done.stdout
