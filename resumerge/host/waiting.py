"""What a process is waiting for, as far as the kernel tells."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_STATES = {
    "R": "is computing",
    "S": "sleeps",
    "D": "waits for a disk or a network filesystem",
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "is dead",
}
_WORST_FIRST = "DtTRSZ"

_FILE_CALLS = {
    "x86_64": {
        **{0: "read", 1: "write", 17: "pread64", 18: "pwrite64", 295: "preadv", 296: "pwritev"},
        **{74: "fsync", 75: "fdatasync", 285: "fallocate", 326: "copy_file_range"},
    },
    "aarch64": {
        **{63: "read", 64: "write", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev"},
        **{82: "fsync", 83: "fdatasync", 47: "fallocate", 285: "copy_file_range"},
    },
}
"""System calls whose first argument is an open file, by their numbers."""


@dataclass(frozen=True)
class Waiting:
    """What the most hindered thread of a process does.

    Args:
        state: one letter, as in ``/proc/PID/status``; empty where the system does not say.
        wchan: the kernel's function that it waits in; empty where the system does not say.
        call: the system call on a file that it is in, and
        file: that file; empty if it is in none, or the system does not say.
    """

    state: str = ""
    wchan: str = ""
    call: str = ""
    file: str = ""

    def __str__(self) -> str:
        text = _STATES.get(self.state, "does not say what it waits for")
        if self.file:
            text += f", in {self.call} of {self.file}"
        if self.wchan:
            text += f" (in the kernel's {self.wchan})"
        return text


def waiting(pid: int) -> Waiting:
    """Look at all threads of a process: one that waits for a disk explains more than the others."""
    tasks = list(Path(f"/proc/{pid}/task").glob("*"))
    found = [seen for task in tasks if (seen := _thread(pid, task)).state in _STATES]
    rank = _WORST_FIRST.index
    return min(found, key=lambda seen: (rank(seen.state), not seen.file), default=Waiting())


def _thread(pid: int, task: Path) -> Waiting:
    state = _read(task / "stat").rpartition(")")[2].split()[:1]
    wchan = _read(task / "wchan")
    call, file = _file_call(pid, _read(task / "syscall").split())
    return Waiting("".join(state), "" if wchan == "0" else wchan, call, file)


def _file_call(pid: int, words: list[str]) -> tuple[str, str]:
    with suppress(OSError, ValueError, IndexError, KeyError):
        call = _FILE_CALLS[platform.machine()][int(words[0])]
        return call, os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")  # noqa: PTH115
    return "", ""


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text().strip()
    return ""
