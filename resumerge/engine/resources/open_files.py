"""This process's limit of open files, because models and shards stay open during a merge."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from contextlib import suppress

from resumerge.errors import Reason, Resumable

_ENOUGH = 1 << 16
_LEDGER_FILES = 12
"""The most open files of a ledger, its snapshot and SQLite's files beside them."""


def allow_many_open_files() -> None:
    """Raise this process's limit of open files, often 1024 or 256, up to the system's maximum."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = _ENOUGH if hard_limit == resource.RLIM_INFINITY else min(hard_limit, _ENOUGH)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < new_limit:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))


def has_too_many_open_files(error: Exception) -> bool:
    """Return whether an error means that too many files are open.

    SQLite's error does not tell: then the function tries to open files.
    """
    if isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error):
        return not _can_open(_LEDGER_FILES)
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)


def _can_open(count: int) -> bool:
    descriptors: list[int] = []
    with suppress(OSError):
        while len(descriptors) < count:
            descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    for fd in descriptors:
        os.close(fd)
    return len(descriptors) == count


def too_many_open_files(then: str) -> Resumable:
    """Return the error for too many open files; `then` is the next step for the user, as a verb."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Resumable(
        Reason.OPEN_FILES,
        f"Too many open files: this process may open {limit}. Close other programs or raise the "
        f"limit (ulimit -n), then {then}.",
    )
