"""Free space of disks."""

from __future__ import annotations

import shutil
from pathlib import Path


def free_bytes(path: Path) -> int:
    """Free bytes of the disk that a path, which need not exist yet, would be on."""
    folder = existing_folder(path)
    return shutil.disk_usage(folder).free if folder else 0


def existing_folder(path: Path) -> Path | None:
    """The path, or the nearest folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
