"""Locks: one process per run and per output. The kernel releases a dead process's locks."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resumerge.errors import InputError, refuse
from resumerge.foreign_files import read_foreign
from resumerge.host.machine import hostname
from resumerge.output_path import OutputPath

LOCK_FILE = "lock"
LARGEST_LOCK = 1 << 12
"""The most bytes that are read from a lock file."""

ENDING_SECONDS = 0.3
"""Seconds to wait for a process that is working on a run, because it may be about to end."""

LOOKING_SECONDS = 60.0
"""Seconds to wait for processes that call `lock_holder`. They hold a shared lock for an instant, or
longer if a busy machine suspends them in that instant."""

UNLOCKED_SECONDS = 60.0
"""Age in seconds from which a run's empty folder counts as abandoned."""


@contextmanager
def run_lock(folder: Path, run: str) -> Iterator[None]:
    """Hold a run's lock while the context is open.

    Raises:
        InputError: another live process holds the lock; the message names its pid and host.
    """
    lock_path = folder / LOCK_FILE
    fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _acquire(fd):
            lock_owner = lock_holder(folder) or {}
            raise refuse(
                "Another process is working on this run",
                where=str(folder),
                found=f"pid {lock_owner.get('pid', '?')} on {lock_owner.get('host', '?')} "
                f"holds the lock of run {run}",
                fix=f"wait for it (`resumerge status {run} --watch`) or stop it",
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "host": hostname()}).encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _acquire(fd: int) -> bool:
    """Lock a file exclusively; return False if another process keeps it locked."""
    wait_started = time.monotonic()
    while not _try_lock(fd, fcntl.LOCK_EX):
        is_lock_shared = _try_lock(fd, fcntl.LOCK_SH)  # by `lock_holder`
        fcntl.flock(fd, fcntl.LOCK_UN)
        if time.monotonic() - wait_started >= (
            LOOKING_SECONDS if is_lock_shared else ENDING_SECONDS
        ):
            return False
        time.sleep(0.02)
    return True


def _try_lock(fd: int, how: int) -> bool:
    """Lock a file if that is possible without waiting; return whether it is locked now."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock_holder(folder: Path) -> dict[str, object] | None:
    """Return ``pid`` and ``host`` of the live process that holds a run's lock; None without one."""
    lock_path = folder / LOCK_FILE
    try:
        # Every user can read it.
        fd = os.open(lock_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        try:
            return dict(json.loads(read_foreign(lock_path, LARGEST_LOCK)))
        except (ValueError, TypeError):
            return {}
    finally:
        os.close(fd)


def is_abandoned(folder: Path) -> bool:
    """Return whether the process that was creating or deleting a run in this folder is dead."""
    if any(folder.iterdir()):
        return lock_holder(folder) is None
    return time.time() - folder.stat().st_mtime > UNLOCKED_SECONDS


@contextmanager
def output_lock(out: OutputPath) -> Iterator[None]:
    """Hold a lock on an output, in case a run in another state folder has the same output.

    An output folder is locked directly. An output of one file is locked through a hidden file
    beside it, because other runs may write to the same folder. The hidden file is removed at the
    end.

    Raises:
        InputError: another live process is writing to the output.
    """
    fd = (
        _open_lock_file(out)
        if out.is_file
        else _open_locked(out, out.folder, os.O_RDONLY | os.O_DIRECTORY)
    )
    try:
        yield
    finally:
        if out.is_file:
            _lock_file_of(out).unlink(missing_ok=True)  # unlinked while locked: no race
        os.close(fd)


def remove_stale_lock(out: OutputPath) -> None:
    """Remove the hidden lock file that a killed process left beside a finished output."""
    if out.is_file and _lock_file_of(out).exists():
        with suppress(OSError, InputError), output_lock(out):
            pass


def _lock_file_of(out: OutputPath) -> Path:
    return out.path.with_name(f".{out.path.name}.lock")


def _open_lock_file(out: OutputPath) -> int:
    """Create and lock the hidden file beside an output; return its descriptor."""
    lock_path = _lock_file_of(out)
    while True:
        fd = _open_locked(out, lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), lock_path.stat()):
                return fd
        os.close(fd)  # another process removed the file before it was locked here


def _open_locked(out: OutputPath, path: Path, flags: int) -> int:
    """Open and lock a file or folder of an output; return its descriptor."""
    fd = os.open(path, os.O_CLOEXEC | flags, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise refuse(
            "Another process is writing to this output",
            where=str(out),
            found="a run in progress, whose ledger is in another state folder",
            fix="wait for it, or name another output",
        ) from None
    return fd
