"""Promise: whatever kernels are called with, they compute or raise an expected exception.

`make sanitize` draws more calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fuzz.kernel_calls.calls import missing

ROOT = Path(__file__).parents[2]
CALLS = 20_000


def test_some_calls_of_every_function(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.kernel_calls", "--seed", "1", "--calls", str(CALLS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout


def test_every_function_is_called() -> None:
    assert list(missing()) == []
