"""Reading files that anybody may have written, with a limit and without waiting; their names."""

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

_STAND_INS = (
    (
        (b"version ",),
        "a Git LFS pointer, which names the file that was not downloaded",
        "run `git lfs pull` where the repo was cloned, or download this file",
    ),
    (
        (b"<!doc", b"<html", b"<head", b"<?xml"),
        "a page for a browser, such as a login or an error",
        "download this file again, with access to it",
    ),
)
"""What lies on disks in place of a model's files: how it begins, what it is, and what to do."""


class UnfitFile(ValueError):
    """An error: a file is too large, or is no regular file. The message is for a person."""


def read_foreign(path: Path, most: int) -> bytes:
    """Return the bytes of a file. A file that would fill the memory, sparse or not, is refused.

    Args:
        path: the file.
        most: the largest size allowed, in bytes.

    Raises:
        UnfitFile: the file is larger, or is no regular file.
        OSError: the file cannot be read.
    """
    check_regular(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnfitFile(f"{size:,} bytes, more than the limit of {most:,}")
        return file.read(size)


def stand_in(first: bytes) -> tuple[str, str] | None:
    """Return what lies in place of a model's file, and what to do; None for anything else.

    Args:
        first: how the file begins, 16 bytes or more where it has them.
    """
    begins = first[:64].lstrip().lower()
    return next(((what, fix) for start, what, fix in _STAND_INS if begins.startswith(start)), None)


def check_regular(path: Path) -> None:
    """Check that a path is a regular file: a pipe waits for a writer, and a device may never end.

    Raises:
        UnfitFile: the path is something else.
        OSError: nothing is there, or it cannot be reached.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise UnfitFile(f"{_KINDS.get(kind, 'something else')}, not a file")


def has_odd_part(name: str) -> bool:
    """Return whether a part of a name, between ``/``, is empty or leads elsewhere as a path."""
    parts = name.split("/")
    return not all(parts) or bool({".", ".."} & set(parts)) or bool(_ODD.search(name))
