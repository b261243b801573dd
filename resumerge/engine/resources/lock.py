"""Locks: one process per run and per output. The kernel releases them when it dies."""

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
"""Bytes."""

ENDING_SECONDS = 0.3
"""Time to wait for a process that works on a run: it may be about to end."""

LOOKING_SECONDS = 60.0
"""Time to wait for processes that only look who works on a run (`lock_holder`): they hold the lock
for an instant, and for longer on a machine that lets them stand still meanwhile."""

UNLOCKED_SECONDS = 60.0
"""Age of an empty folder of a run from which on it counts as abandoned."""


@contextmanager
def run_lock(folder: Path, run: str) -> Iterator[None]:
    """Hold the run's lock.

    Raises:
        InputError: another live process holds it; the message names its pid and host.
    """
    path = folder / LOCK_FILE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _acquire(fd):
            holder = lock_holder(folder) or {}
            raise refuse(
                "Another process is working on this run",
                where=str(folder),
                found=f"pid {holder.get('pid', '?')} on {holder.get('host', '?')} holds the lock "
                f"of run {run}",
                fix=f"wait for it (`resumerge status {run} --watch`) or stop it",
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "host": hostname()}).encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _acquire(fd: int) -> bool:
    """Lock a file; return False if another process works with it."""
    began = time.monotonic()
    while not _is_locked(fd, fcntl.LOCK_EX):
        is_looked_at = _is_locked(fd, fcntl.LOCK_SH)
        fcntl.flock(fd, fcntl.LOCK_UN)
        if time.monotonic() - began >= (LOOKING_SECONDS if is_looked_at else ENDING_SECONDS):
            return False
        time.sleep(0.02)
    return True


def _is_locked(fd: int, how: int) -> bool:
    """Lock a file if that is possible at once; return whether it is locked."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock_holder(folder: Path) -> dict[str, object] | None:
    """Return ``pid`` and ``host`` of the live process that holds the run's lock; None if none."""
    path = folder / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # every user may look
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        try:
            return dict(json.loads(read_foreign(path, LARGEST_LOCK)))
        except (ValueError, TypeError):
            return {}
    finally:
        os.close(fd)


def is_abandoned(folder: Path) -> bool:
    """Return whether no process works on a run that was being created or deleted in a folder."""
    if any(folder.iterdir()):
        return lock_holder(folder) is None
    return time.time() - folder.stat().st_mtime > UNLOCKED_SECONDS


@contextmanager
def output_lock(out: OutputPath) -> Iterator[None]:
    """Hold a lock on an output, against a run whose ledger is in another state folder.

    A folder is locked itself. One file is locked by a hidden file beside it, which is removed at
    the end: the folder is the user's, and other runs may write their files to it meanwhile.

    Raises:
        InputError: another live process writes there.
    """
    fd = (
        _lock_beside(out) if out.is_file else _locked(out, out.folder, os.O_RDONLY | os.O_DIRECTORY)
    )
    try:
        yield
    finally:
        if out.is_file:
            _beside(out).unlink(missing_ok=True)  # still locked: nobody has it by this name
        os.close(fd)


def remove_stale_lock(out: OutputPath) -> None:
    """Remove the hidden file of a process that was killed when its work on the output was done."""
    if out.is_file and _beside(out).exists():
        with suppress(OSError, InputError), output_lock(out):
            pass


def _beside(out: OutputPath) -> Path:
    return out.path.with_name(f".{out.path.name}.lock")


def _lock_beside(out: OutputPath) -> int:
    """Return the descriptor of the locked file beside an output."""
    path = _beside(out)
    while True:
        fd = _locked(out, path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        os.close(fd)  # its owner has removed it meanwhile


def _locked(out: OutputPath, path: Path, flags: int) -> int:
    """Return the descriptor of a locked file or folder."""
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
