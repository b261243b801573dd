"""The capabilities of a filesystem, determined by experiments with small files."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from resumerge.storage import FULL_DISK_ERRNOS, Storage

TEMPORARY = {
    errno.EIO,
    *FULL_DISK_ERRNOS,
    errno.EROFS,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.EHOSTDOWN,
    errno.ENODEV,
    errno.ENXIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOENT,
}
"""The error numbers of temporary failures. Any other error means that a capability is missing."""


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a filesystem.

    Args:
        rename: whether a file can be renamed to an unused name.
        rename_over: whether a rename can replace another file.
        exclusive: whether creation can fail if the file exists.
        sync: whether the content of a file can be synced to the disk.
        sync_folder: whether the names in a folder can be synced to the disk.
        extend: whether an existing file can be opened and extended at its end.
    """

    rename: bool
    rename_over: bool
    exclusive: bool
    sync: bool
    sync_folder: bool
    extend: bool


def find_capabilities(folder: Path, storage: Storage) -> Capabilities:
    """Test every capability with small files in a folder, and remove these files.

    Raises:
        OSError: the filesystem fails now, or cannot store a small file.
    """
    name = f"probe-{secrets.token_hex(4)}"
    files = [folder / f"{name}-{number}" for number in range(3)]
    try:
        for path in files[:2]:
            _fill(storage, path, path.name.encode())
            if path.read_bytes() != path.name.encode():
                raise OSError(errno.EIO, "what was read differs from what was written", str(path))
        can_extend = _can(lambda: _extends(storage, files[0]))
        can_sync = _can(lambda: _syncs(storage, files[0]))
        can_sync_folder = _can(lambda: _syncs_folder(storage, folder))
        can_rename = _can(lambda: _renames(storage, files[0], files[2]))
        can_rename_over = can_rename and _can(lambda: _renames(storage, files[1], files[2]))
        creates_exclusively = _can(lambda: _is_exclusive(storage, files[0]))
        return Capabilities(
            can_rename, can_rename_over, creates_exclusively, can_sync, can_sync_folder, can_extend
        )
    finally:
        for path in files:
            with suppress(OSError):
                storage.remove(path)


def _can(trial: Callable[[], bool]) -> bool:
    try:
        return trial()
    except OSError as error:
        if error.errno in TEMPORARY:
            raise
        return False


def _fill(storage: Storage, path: Path, data: bytes, *, exclusive: bool = False) -> None:
    fd = storage.begin(path, exclusive=exclusive)
    try:
        storage.write(fd, data, 0)
    finally:
        os.close(fd)


def _extends(storage: Storage, path: Path) -> bool:
    content = path.read_bytes()
    fd = storage.open(path)
    try:
        storage.write(fd, b"more", len(content))
    finally:
        os.close(fd)
    return path.read_bytes() == content + b"more"


def _syncs(storage: Storage, path: Path) -> bool:
    fd = storage.begin(path)
    try:
        storage.write(fd, b"durable", 0)
        storage.sync_data(fd)
    finally:
        os.close(fd)
    return True


def _syncs_folder(storage: Storage, folder: Path) -> bool:
    storage.sync_folder(folder)
    return True


def _renames(storage: Storage, source: Path, target: Path) -> bool:
    """Return whether a rename moves the source's bytes to the target."""
    content = source.read_bytes()
    storage.replace(source, target)
    return not source.exists() and target.read_bytes() == content


def _is_exclusive(storage: Storage, path: Path) -> bool:
    """Return whether a second exclusive creation of a file fails."""
    storage.remove(path)
    _fill(storage, path, b"first", exclusive=True)
    try:
        _fill(storage, path, b"second", exclusive=True)
    except FileExistsError:
        return path.read_bytes() == b"first"
    return False
