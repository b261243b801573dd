"""The machine's name, boot id, cores, and free disk space."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path


def hostname() -> str:
    """Return the machine's name."""
    return platform.node() or "unknown"


def boot_id() -> str:
    """Return an id that changes with every boot; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that a path, which need not exist yet, would be on."""
    folder = existing_folder(path)
    return shutil.disk_usage(folder).free if folder else 0


def existing_folder(path: Path) -> Path | None:
    """Return the path, or the nearest folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
