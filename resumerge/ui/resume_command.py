"""The exact command that goes on with a run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.ledger.home import Home


def resume_command(run: str, state_dir: Path | None) -> str:
    """``resumerge resume RUN --state-dir DIR``: it works from any folder and in any shell."""
    return shlex.join(["resumerge", "resume", run, "--state-dir", str(Home(state_dir).folder)])


def mirror_command(url: str) -> str:
    """``resumerge resume DEST``: on any machine."""
    return shlex.join(["resumerge", "resume", url])


def remake_command(url: str) -> str:
    """What makes a finished model again in its mirror, where nothing is known but the mirror."""
    return f"resumerge run RECIPE OUT --mirror {shlex.quote(url)} --restart"


def command_of(run: Mapping[str, Any]) -> str:
    """What goes on with one of the runs of ``resumerge status --json``."""
    mirror = run.get("mirror")
    if mirror and not mirror["here"]:
        return mirror_command(mirror["url"])
    return resume_command(run["id"], Path(run["ledger"]).parents[1])


def repair_command(target: str, state_dir: Path | None) -> str:
    """``resumerge cache repair TARGET``, with the state folder that knows of the damage."""
    folder = str(Home(state_dir).folder)
    return shlex.join(["resumerge", "cache", "repair", target, "--state-dir", folder])


def repeat_command() -> str:
    """The command that this process was started with: what resumes where no run exists yet.

    It works from any folder, though its paths, and the recipe's, may be relative.
    """
    words = sys.argv[1:]
    state = os.environ.get("RESUMERGE_STATE_DIR")
    if state and not any(word.split("=")[0] == "--state-dir" for word in words):
        words += ["--state-dir", state]
    return shlex.join(["resumerge", *words, "--chdir", str(Path.cwd())])
