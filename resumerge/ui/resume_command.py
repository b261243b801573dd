"""The exact command that goes on with a run."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path


def resume_command(run: str, state_dir: Path | None) -> str:
    """``resumerge resume RUN``, with the state folder where it is not the default."""
    words = ["resumerge", "resume", run]
    default = Path(os.environ.get("RESUMERGE_STATE_DIR") or "state").absolute()
    if state_dir is not None and state_dir.absolute() != default:
        words += ["--state-dir", str(state_dir)]
    return shlex.join(words)


def repeat_command() -> str:
    """The command that this process was started with: what resumes where no run exists yet."""
    return shlex.join(["resumerge", *sys.argv[1:]])
