"""The operation that a stalled process waits for, as reported by the kernel (Linux only)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from resumerge.host.system import kernel_file

_FILESYSTEMS = ("fuse", "nfs", "cifs")
"""Words in the names of kernel functions that wait for a filesystem. The state may be ``S``."""

_STATES = {
    "D": "is waiting for a disk or a network filesystem",
    "t": "is stopped by a debugger",
    "T": "is stopped by a signal",
    "R": "is computing",
    "S": "is sleeping",
    "Z": "is dead",
}
"""The states in ``/proc/PID/stat``, the one that explains a stall best first."""


@dataclass(frozen=True)
class ThreadState:
    """The state of a thread.

    Args:
        state: the letter in ``/proc/PID/stat``; empty if unknown.
        kernel_function: the kernel's function that the thread waits in; empty if unknown.
    """

    state: str = ""
    kernel_function: str = ""

    def __str__(self) -> str:
        text = _STATES.get(self.state, "is in an unknown state")
        return f"{text} (in the kernel's {self.kernel_function})" if self.kernel_function else text


def blocked_thread(pid: int) -> ThreadState:
    """Return the state of the thread that best explains why a process makes no progress."""
    states = list(_STATES)
    threads = [_thread(task) for task in kernel_file(f"/proc/{pid}/task").glob("*")]
    threads_in_known_states = [thread for thread in threads if thread.state in states]
    return min(
        threads_in_known_states,
        key=lambda thread: states.index(thread.state),
        default=ThreadState(),
    )


def _thread(task: Path) -> ThreadState:
    state = _read(task / "stat").rpartition(")")[2].split()[:1]
    function = _read(task / "wchan")
    if any(word in function for word in _FILESYSTEMS):
        state = ["D"]
    return ThreadState("".join(state), "" if function == "0" else function)


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text().strip()
    return ""
