"""The exact command that goes on with a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from resumerge.ledger.home import Home


def resume_command(run: str, state_dir: Path | None) -> str:
    """``resumerge resume RUN --state-dir DIR``: it works from any folder and in any shell."""
    return shlex.join(["resumerge", "resume", run, "--state-dir", str(Home(state_dir).folder)])


def repeat_command() -> str:
    """The command that this process was started with: what resumes where no run exists yet."""
    return shlex.join(["resumerge", *sys.argv[1:]])
