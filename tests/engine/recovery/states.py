"""Copies of a folder: what a crash would leave of it, while the attempt that writes it goes on."""

# ruff: noqa: PTH116 - of an open file, too

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

Inode = tuple[int, int]


def inode_of(file: int | Path) -> Inode:
    """Return the device and the inode of a file, which identify it under all its names."""
    found = os.stat(file)
    return found.st_dev, found.st_ino


def copy_folders(folders: dict[Path, Path]) -> dict[Inode, Path]:
    """Copy folders; a file with several names stays one file.

    A file that another thread removes meanwhile, as SQLite its journal, is left out: a crash may
    leave it or not.

    Args:
        folders: the path of the copy of each folder.

    Returns:
        the copy of each file, by the inode of the original.
    """
    copies: dict[Inode, Path] = {}

    def copy(source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            inode = inode_of(Path(source))
            if inode in copies:
                os.link(copies[inode], target)
            else:
                shutil.copy2(source, target)
                copies[inode] = Path(target)

    for folder, target in folders.items():
        shutil.copytree(folder, target, symlinks=True, copy_function=copy)
    return copies


def digest_of(folder: Path) -> str:
    """Return a digest of the names and the bytes in a folder.

    SQLite's index of its log is left out: it is made anew after a crash.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if not path.name.endswith("-shm"):
            data = path.read_bytes() if path.is_file() else b""
            digest.update(f"{path.relative_to(folder)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]
