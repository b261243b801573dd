"""Untrusted files: reading them with a size limit and without waiting, and checking names."""

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
"""Files that users have in place of a model's file: their first bytes, their kind, the remedy."""


class UnfitFile(ValueError):
    """The error that a file is too large, or not a regular file. The message is for a person."""


def read_foreign(path: Path, most: int) -> bytes:
    """Return the bytes of a file; refuse a file that is too large, sparse or not.

    Args:
        path: a file that someone else may have written; a link to a file is followed.
        most: the largest allowed size in bytes.

    Raises:
        UnfitFile: the file is larger than `most`, or is not a regular file.
        OSError: the file cannot be read.
    """
    check_regular(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnfitFile(f"{size:,} bytes, more than the limit of {most:,}")
        return file.read(size)


def placeholder_kind(first: bytes) -> tuple[str, str] | None:
    """Return the kind of a stand-in for a model's file, and the remedy; None for other files.

    Args:
        first: the first bytes of the file, at least 16 if the file has them.
    """
    lowered_beginning = first[:64].lstrip().lower()
    return next(
        ((kind, fix) for prefix, kind, fix in _STAND_INS if lowered_beginning.startswith(prefix)),
        None,
    )


def check_regular(path: Path) -> None:
    """Check that a path is a regular file: a pipe waits for a writer, a device may be endless.

    Raises:
        UnfitFile: the path is not a regular file.
        OSError: the path does not exist, or cannot be reached.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise UnfitFile(f"{_KINDS.get(kind, 'something else')}, not a file")


def has_odd_part(name: str) -> bool:
    """Return whether a part of a name, between ``/``, is unsafe in a path.

    Unsafe parts are empty parts, ``.``, ``..``, and parts with control characters or a backslash.
    """
    parts = name.split("/")
    return not all(parts) or bool({".", ".."} & set(parts)) or bool(_ODD.search(name))
