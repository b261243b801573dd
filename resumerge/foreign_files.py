"""Files that anybody may have written: read with a limit, never waited for; and their names."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_ODD = re.compile(r"[\0-\x1f\x7f\\]")


class UnfitFile(ValueError):
    """A file is too large, or something else than a regular file. The message is for a person."""


def read_foreign(path: Path, most: int) -> bytes:
    """Return the bytes of a file. One that would fill the memory, sparse or not, is refused.

    Args:
        most: bytes.

    Raises:
        UnfitFile: it is larger, or no regular file.
        OSError: it cannot be read.
    """
    check_regular(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnfitFile(f"{size:,} bytes, more than the limit of {most:,}")
        return file.read(size)


def check_regular(path: Path) -> None:
    """Check that this is a file: opening a pipe waits for a writer, and a device may never end.

    Raises:
        UnfitFile: it is something else.
        OSError: there is nothing, or it cannot be reached.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise UnfitFile(f"{_KINDS.get(kind, 'something else')}, not a file")


def has_odd_part(name: str) -> bool:
    """Return whether a part of a name, between ``/``, is empty or leads elsewhere as a path."""
    parts = name.split("/")
    return not all(parts) or bool({".", ".."} & set(parts)) or bool(_ODD.search(name))
