"""Temporary folders that do not stay when their process is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

PREFIX, LOCK_FILE = "resumerge-", "in use"
"""A folder with this lock file is one of these; others may have such names, too."""

STARTING_SECONDS = 60.0
"""Age from which on a lock that nobody holds is one of a dead process."""


class TemporaryFolder:
    """A folder among the system's temporary files, deleted by `delete`, or with the process.

    It is locked meanwhile. Those of this user's processes that were killed are deleted first.
    """

    def __init__(self) -> None:
        _delete_left_behind()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.path = folder / "files"
        self.path.mkdir()
        self._finalizer = weakref.finalize(self, _delete, folder, fd)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.delete()

    def delete(self) -> None:
        """Delete it now; nothing happens if that was done before."""
        self._finalizer()


def _delete_left_behind() -> None:
    """Delete the folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            _delete_if_dead(folder)


def _delete_if_dead(folder: Path) -> None:
    """Delete a folder if it is one of this user's, not new, and nobody holds its lock.

    Raises:
        OSError: it is not, or somebody does.
    """
    fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        found = os.fstat(fd)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        if ours and time.time() - found.st_mtime > STARTING_SECONDS:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(fd)


def _delete(folder: Path, fd: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(fd)
