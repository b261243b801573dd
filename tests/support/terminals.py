"""Commands that run in a terminal of their own."""

from __future__ import annotations

import os
import pty
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def in_a_terminal(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """Start a command in a folder; return its pid and the other end of its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(command[0], command, os.environ if environment is None else environment)
    return pid, terminal


def ended(pid: int, terminal: int) -> tuple[int, str]:
    """Wait for the end of a command, close its terminal, and return its exit code and output."""
    said = b""
    with suppress(OSError):  # that is the end of what a terminal has to say
        while piece := os.read(terminal, 65536):
            said += piece
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode()
