"""Starts commands that go on in the background, and raises what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, Reason, Resumable, ResumergeError, refuse


def start(words: list[str], folder: Path, state_dir: Path) -> None:
    """Run a command that merges, until it works on its run or has ended.

    It goes on when this process ends.

    Args:
        words: the command and its arguments.
        folder: the working folder.
        state_dir: the folder of the ledgers.

    Raises:
        InputError: it refused what it was to do; nothing was written.
        Resumable: it stopped; the same command goes on.
    """
    # -P: what lies in the folder is imported by no name.
    command = [sys.executable, "-P", "-m", "resumerge", *words]
    command += ["--state-dir", str(state_dir), "--detach", "--json"]
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise _error(words[0], done)


def _error(command: str, done: subprocess.CompletedProcess[str]) -> ResumergeError:
    """Return the error that a command ended with, from its last line of JSON."""
    try:
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if "problems" in told:
            return InputError([Problem(**problem) for problem in told["problems"]])
        return Resumable(Reason(told["reason"]), told["message"])
    except (IndexError, KeyError, TypeError, ValueError):
        return refuse(
            f"`resumerge {command}` did not begin",
            expected="an exit code of 0",
            found=f"{done.returncode}: {done.stderr.strip()[-1000:]}",
        )
