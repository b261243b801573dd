"""The machine's name, boot id, cores, and free disk space."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from resumerge.host.system import kernel_file, offered


def hostname() -> str:
    """Return the machine's name."""
    return socket.gethostname() or "unknown"


def boot_id() -> str:
    """Return an id that changes with every boot; empty where the system does not say."""
    try:
        return kernel_file("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = offered(os, "sched_getaffinity")
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that a path, which need not exist yet, would be on."""
    folder = existing_folder(path)
    return shutil.disk_usage(folder).free if folder else 0


def existing_folder(path: Path) -> Path | None:
    """Return the path, or the nearest folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
