"""What goes wrong with a disk, as something to mend and resume after."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from resumerge.errors import Resumable

DISK_ERRORS = (OSError, sqlite3.OperationalError)
"""What a full or failing disk raises. SQLite's other errors say that a file is damaged."""

UNFIT_ERRORS = {
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
}
"""What is wrong with a path that the user named, and not with the disk."""


@contextmanager
def resumable_disk_errors() -> Iterator[None]:
    """Raise `Resumable` for what goes wrong with a disk inside."""
    try:
        yield
    except DISK_ERRORS as error:
        raise out_of_order(error) from error


def is_full(error: Exception) -> bool:
    """Whether this says that a disk is full: one that is written to."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def out_of_order(error: Exception, then: str = "resume") -> Resumable:
    """What went wrong with a disk, for a person, and what to do after it is mended."""
    if is_full(error) or "is full" in str(error):
        return Resumable("disk_full", f"The disk is full ({error}). Free some space, then {then}.")
    if isinstance(error, sqlite3.OperationalError):  # of a full disk it may say no more than this
        return Resumable(
            "io", f"The ledger: {error}. Is the disk full, or failing? Mend that, then {then}."
        )
    return Resumable("io", f"Reading or writing failed: {error}. Mend that, then {then}.")
