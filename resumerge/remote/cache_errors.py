"""Errors for a cache of remote files that cannot be written to."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.errors import InputError, Reason, Resumable, ResumergeError, refuse
from resumerge.storage import FULL_DISK_ERRNOS

_UNUSABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


def cache_error(error: Exception, what: str, cache: Path | str = "") -> ResumergeError | None:
    """Return the error to raise for an exception about the cache; None for any other exception.

    Args:
        error: an exception of a request, or of a write to the cache.
        what: the model, or the address of the file, that was being written to the cache.
        cache: the cache's folder; empty if unknown.
    """
    if not isinstance(error, OSError):
        return None
    if error.errno in FULL_DISK_ERRNOS:
        return full_cache(what, cache)
    return None if error.filename is None else _unusable(error, what, cache)


def full_cache(what: str, cache: Path | str = "") -> Resumable:
    """Return the error for a cache whose disk is full; see `cache_error` for the arguments."""
    place = f" into {cache}" if cache else ""
    return Resumable(
        Reason.DISK_FULL,
        f"The disk is full while downloading {what}{place}\n"
        "Free some space, or move the cache by setting HF_HOME, then resume.",
    )


@contextmanager
def usable_cache(what: str, cache: Path) -> Iterator[None]:
    """Translate an error about an unusable cache folder to one that names the folder.

    A full disk is not translated here.

    Args:
        what: the model, or the address of the file, that is written to the cache.
        cache: the cache's folder, for the message.

    Raises:
        InputError: code in this context failed because the folder is not usable.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _UNUSABLE or error.filename is None:
            raise
        raise _unusable(error, what, cache) from error


def _unusable(error: OSError, what: str, cache: Path | str) -> InputError:
    return refuse(
        "The cache folder is not usable",
        where=what,
        expected=f"a folder that this user may write to{f': {cache}' if cache else ''}",
        found=f"{error.strerror}: {error.filename}",
        fix="change its permissions, or set HF_HOME to a folder on a disk that is writable",
    )
