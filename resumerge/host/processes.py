"""Processes of this machine: telling reused pids apart, and a clock that never stops."""

from __future__ import annotations

import os
import time

from resumerge.host.system import kernel_file, offered


def birth(pid: int) -> int | None:
    """Return the start of a live process, in ticks since boot.

    With the pid it identifies the process: the system reuses pids.

    Returns:
        the ticks; None if there is no such process, or it is dead; 0 where the system does not say.
    """
    try:
        facts = kernel_file(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if kernel_file("/proc/self/stat").exists() or not _exists(pid) else 0
    return None if facts[0] in "ZX" else int(facts[19])


def pid_space() -> str:
    """Return the pid namespace: pids may be compared within one namespace. Empty if not known."""
    try:
        return str(kernel_file("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def clock() -> float:
    """Return seconds; the clock does not stop while the machine is suspended.

    POSIX leaves open whether CLOCK_MONOTONIC stops then; macOS's does not (clock_gettime(3)).
    """
    boot = offered(time, "CLOCK_BOOTTIME")
    return time.clock_gettime(time.CLOCK_MONOTONIC if boot is None else boot)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
