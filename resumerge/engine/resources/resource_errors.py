"""Errors of disk, open files and memory. They stop a run, which can be resumed."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from resumerge.engine.resources.allocation_errors import out_of_memory
from resumerge.engine.resources.open_files import (
    has_too_many_open_files,
    too_many_open_files,
)
from resumerge.errors import Reason, Resumable
from resumerge.storage import FULL_DISK_ERRNOS

DISK_ERRORS = (OSError, sqlite3.OperationalError)
"""The exceptions of a full or failing disk. SQLite's other errors mean that a file is damaged."""

UNFIT_ERRORS = {
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
}
"""Error numbers that mean an unsuitable path from the user, not a disk error."""


@contextmanager
def resumable_disk_errors() -> Iterator[None]:
    """Turn every disk error inside the context into `Resumable`."""
    try:
        yield
    except DISK_ERRORS as error:
        raise as_resumable(error) from error


def is_full(error: Exception) -> bool:
    """Return whether an error means that a disk is full."""
    return getattr(error, "errno", None) in FULL_DISK_ERRNOS


def as_resumable(error: Exception, then: str = "resume") -> Resumable:
    """Return the `Resumable` that explains a disk error to the user.

    Args:
        error: one of `DISK_ERRORS`; it may also mean too many open files, or too little memory.
        then: the user's next step after fixing the cause, as a verb.
    """
    if has_too_many_open_files(error):
        return too_many_open_files(then)
    if getattr(error, "errno", None) == errno.ENOMEM:
        return out_of_memory(error)
    if is_full(error) or "is full" in str(error):
        return Resumable(
            Reason.DISK_FULL, f"The disk is full ({error}). Free some space, then {then}."
        )
    if isinstance(error, sqlite3.OperationalError):  # possibly the only sign of a full disk
        return Resumable(
            Reason.IO,
            f"The ledger cannot be used: {error}. Check whether the disk is full or failing, "
            f"then {then}.",
        )
    return Resumable(Reason.IO, f"Reading or writing failed: {error}. Fix the cause, then {then}.")
