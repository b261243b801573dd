"""Reads of regular files in a shared folder, without following links or waiting for pipes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from resumerge.mirror.stores.base import Moved

FILE_PIECE_BYTES = 1 << 20
"""The most bytes of a file per read. Between two pieces, a transfer can wait or stop."""

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""The flags to open an untrusted file, without following a link or waiting for a pipe."""

Identity = tuple[int, int, int]
"""The inode, size in bytes and modification time (ns) of a file."""


def read_small(path: Path, most: int) -> bytes:
    """Return the content of a file; empty if it has more than `most` bytes or is not regular.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    if not is_plain(path):
        return b""
    with os.fdopen(os.open(path, _READ), "rb") as file:
        file_stat = os.fstat(file.fileno())
        is_small = stat.S_ISREG(file_stat.st_mode) and file_stat.st_size <= most
        return file.read(file_stat.st_size) if is_small else b""


def pieces(path: Path, offset: int = 0) -> Iterator[memoryview]:
    """Yield a file's bytes from an offset on, in one buffer that is reused."""
    buffer = memoryview(bytearray(FILE_PIECE_BYTES))
    fd = os.open(path, _READ)
    try:
        while count := os.preadv(fd, [buffer], offset):
            yield buffer[:count]
            offset += count
    finally:
        os.close(fd)


def sha256_of_plain(path: Path, moved: Moved) -> str:
    """Return the SHA-256 of a regular file in hex digits, without following a link.

    Args:
        path: a file in a shared folder; opening a link raises `OSError`.
        moved: called with the number of bytes of each piece; may raise to stop.
    """
    digest = hashlib.sha256()
    for piece in pieces(path):
        digest.update(piece)
        moved(len(piece))
    return digest.hexdigest()


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes; None if it does not exist."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return None


def identity_of(path: Path) -> Identity | None:
    """Return the `Identity` of a file; None if it does not exist."""
    try:
        file_stat = path.lstat()
    except FileNotFoundError:
        return None
    return file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns


def is_plain(path: Path) -> bool:
    """Return whether a path is a regular file, not a link, pipe or device.

    Raises:
        FileNotFoundError: the path does not exist.
    """
    return stat.S_ISREG(path.lstat().st_mode)
