"""`resumerge status` as a process, and the document of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import resumerge


def start(*words: object, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start `resumerge` as a process of its own."""
    command = [sys.executable, "-m", "resumerge", *map(str, words)]
    return subprocess.Popen(command, cwd=cwd, text=True, **options)


def status(place: Path, *words: object, **environment: str) -> str:
    """Run `resumerge status` without a terminal, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "resumerge", "status", *map(str, words)],
        cwd=place,
        env={**os.environ, **environment},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))


def run_of(place: Path) -> dict[str, Any]:
    """Return the document of the only run in a folder."""
    [run] = resumerge.status(state_dir=place / "state")["runs"]
    return dict(run)
