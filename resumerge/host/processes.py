"""Processes of this machine: which one it is that has a number, and clocks that do not stop."""

from __future__ import annotations

import os
import time
from pathlib import Path


def birth(pid: int) -> int | None:
    """When a live process began, in ticks since boot: numbers are given out again.

    Returns:
        None where there is no such process, or a dead one; 0 where the system does not say.
    """
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _exists(pid) else 0
    return None if facts[0] in "ZX" else int(facts[19])


def pid_space() -> str:
    """Numbers of processes mean something among those with the same one; empty if not known."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def clock() -> float:
    """Seconds, while the machine is suspended too."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
