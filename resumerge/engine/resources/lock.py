"""One process a run: a lock that the kernel lets go of when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.errors import refuse
from resumerge.host.machine import hostname

LOCK_FILE = "lock"
PATIENCE_SECONDS = 0.3
UNLOCKED_SECONDS = 60.0


@contextmanager
def run_lock(folder: Path, run: str) -> Iterator[None]:
    """Hold the run's lock inside.

    Raises:
        InputError: another live process holds it; names its pid and host.
    """
    path = folder / LOCK_FILE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _taken(fd):
            holder = lock_holder(folder) or {}
            raise refuse(
                "Another process is working on this run",
                where=str(folder),
                found=f"pid {holder.get('pid', '?')} on {holder.get('host', '?')} holds run {run}",
                fix=f"wait for it (`resumerge status {run} --watch`) or stop it first",
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "host": hostname()}).encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _taken(fd: int) -> bool:
    """Try for the lock for a moment: who only asks for its holder has it for an instant too."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


def lock_holder(folder: Path) -> dict[str, object] | None:
    """``pid`` and ``host`` of the live process that holds the run; None if none does."""
    path = folder / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # anybody may look
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        try:
            return dict(json.loads(path.read_text()))
        except ValueError:
            return {}
    finally:
        os.close(fd)


def is_abandoned(folder: Path) -> bool:
    """Whether nobody works in a folder any more, nor has only just made it and not locked yet."""
    if any(folder.iterdir()):
        return lock_holder(folder) is None
    return time.time() - folder.stat().st_mtime > UNLOCKED_SECONDS


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a lock on an output folder inside, against a run with its ledger somewhere else.

    Raises:
        InputError: another live process writes there.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise refuse(
                "Another process is writing to this output folder",
                where=str(folder),
                found="a live run whose ledger is in another state folder",
                fix="wait for it, or name another output folder",
            ) from None
        yield
    finally:
        os.close(fd)
