"""The machine's name, boot id and cores."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def hostname() -> str:
    """The machine's name."""
    return platform.node() or "unknown"


def boot_id() -> str:
    """An id that changes with every boot; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
