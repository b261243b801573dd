"""What a user is told where the cache of remote files cannot be written to: by a library, or by
downloads of ours."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.errors import InputError, Resumable, ResumergeError, refuse
from resumerge.storage import DISK_FULL

_UNUSABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


def cache_error(error: Exception, what: str, cache: Path | str = "") -> ResumergeError | None:
    """Return the error to raise for one of a file in the cache; None if the exception is none.

    Args:
        what: was to be written there: a model, or the address of its file.
        cache: its folder, if it is known.
    """
    if not isinstance(error, OSError):
        return None
    if error.errno in DISK_FULL:
        return full_cache(what, cache)
    return None if error.filename is None else _unusable(error, what, cache)


def full_cache(what: str, cache: Path | str = "") -> Resumable:
    """Return the error that its disk is full; arguments as of `cache_error`."""
    into = f" into {cache}" if cache else ""
    return Resumable(
        "disk_full",
        f"The disk is full while downloading {what}{into}\n"
        "Free some space, or move the cache by setting HF_HOME, then resume.",
    )


@contextmanager
def usable_cache(what: str, cache: Path) -> Iterator[None]:
    """Tell a user which folder of the cache cannot be written to, if one cannot; arguments as of
    `cache_error`. A full disk is told by whoever runs out of space.

    Raises:
        InputError: that is why what is inside failed.
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
