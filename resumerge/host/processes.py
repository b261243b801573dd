"""Processes of this machine: identification despite reused pids, and a clock that never stops."""

from __future__ import annotations

import os
import time

from resumerge.host.system import kernel_file, offered


def birth(pid: int) -> int | None:
    """Return the start time of a live process, in ticks since boot.

    Pid and start time together identify a process, because the system reuses pids.

    Returns:
        the ticks; None if the process does not exist or is dead; 0 if the system does not report
        start times.
    """
    try:
        stat_fields = kernel_file(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if kernel_file("/proc/self/stat").exists() or not _exists(pid) else 0
    return None if stat_fields[0] in "ZX" else int(stat_fields[19])


def pid_space() -> str:
    """Return an id of the pid namespace; empty if unknown. Pids are unique within a namespace."""
    try:
        return str(kernel_file("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def clock() -> float:
    """Return seconds of a monotonic clock that also counts while the machine is suspended.

    This is CLOCK_BOOTTIME, or else CLOCK_MONOTONIC. POSIX does not specify whether CLOCK_MONOTONIC
    stops during suspension; on macOS it does not (clock_gettime(3)).
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
