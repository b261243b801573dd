"""Temporary folders. If a process is killed, the next process deletes its folders."""

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
"""The prefix of a temporary folder's name, and the name of its lock file. Only the lock file proves
that the program created a folder."""

STARTING_SECONDS = 60.0
"""Age in seconds from which an unlocked lock file counts as left by a dead process."""


class TemporaryFolder:
    """A folder among the system's temporary files, deleted by `delete` or at the process's end.

    The process holds a lock on the folder. Creating a folder first deletes the folders of this
    user's killed processes.
    """

    def __init__(self) -> None:
        _delete_leftovers()
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
        """Delete the folder now, unless it is already deleted."""
        self._finalizer()


def _delete_leftovers() -> None:
    """Delete the folders of killed processes."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            _delete_if_dead(folder)


def _delete_if_dead(folder: Path) -> None:
    """Delete a folder if it is this user's, old enough, and not locked by a process.

    Raises:
        OSError: the folder has no lock file, or a process holds the lock.
    """
    fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        file_status = os.fstat(fd)
        is_own_file = stat.S_ISREG(file_status.st_mode) and file_status.st_uid == os.getuid()
        if is_own_file and time.time() - file_status.st_mtime > STARTING_SECONDS:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(fd)


def _delete(folder: Path, fd: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(fd)
