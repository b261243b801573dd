"""A store in a folder: a mounted drive, a network share, another disk.

The filesystem must support reading files, and writing them from beginning to end. All other
capabilities are optional: `capabilities.py` tests which ones the filesystem has.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from resumerge.errors import Problem
from resumerge.mirror.stores.base import METADATA, SMALL, Moved, Store
from resumerge.mirror.stores.capabilities import Capabilities, find_capabilities
from resumerge.mirror.stores.plain_files import (
    Identity,
    identity_of,
    is_plain,
    pieces,
    read_small,
    sha256_of_plain,
    size_of,
)
from resumerge.storage import Storage, drop_from_cache

SYNC_BYTES = 64 << 20
"""The bytes of an upload between two syncs.

Without these syncs, the kernel would buffer too many bytes for a slow disk.
"""

SETTLE_SECONDS = 2.0
"""The seconds after which other machines see a new file on filesystems without exclusive creation.
"""

PART = ".part"
"""The suffix of an incomplete file."""


class FolderStore(Store):
    """Files in a folder.

    Every change is an operation of `Storage`. The first change creates the folder, but not its
    parent, so that an unmounted drive is not taken for an empty one.

    Args:
        folder: the folder of the files, which need not exist before the first change.
        storage: makes the changes; None for a new `Storage`.
    """

    scheme = ""
    example = "a folder whose parent exists"
    heartbeat_seconds = 10.0

    def __init__(self, folder: Path, storage: Storage | None = None) -> None:
        self.folder = folder
        self.url = str(folder)
        self._storage = storage or Storage()
        self._capabilities: Capabilities | None = None
        self._wrong: set[str] = set()
        """The names of uploads whose content differed. They start again from the first byte."""

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        return cls(Path(cls.normalise(address)))

    @classmethod
    def recognises(cls, text: str) -> bool:
        try:
            return (Path(text).expanduser() / METADATA).is_dir()
        except (OSError, RuntimeError, ValueError):
            return False

    @classmethod
    def normalise(cls, address: str) -> str:
        return str(Path(address).expanduser().absolute())

    @property
    def local_folder(self) -> Path:
        return self.folder

    def check_address(self) -> list[Problem]:
        folder = self.folder
        if folder.is_dir():
            return []
        if folder.exists() or folder.is_symlink():
            return [
                Problem(
                    "This cannot be a mirror",
                    where=self.url,
                    expected=self.example,
                    found="something that is not a folder",
                    fix="name a folder, or a repo on the Hub",
                )
            ]
        if folder.parent.is_dir():
            return []
        return [
            Problem(
                "The folder that would contain the mirror does not exist",
                where=self.url,
                expected=self.example,
                found=f"no folder {folder.parent}",
                fix="mount the drive, create the folder, or name another mirror",
            )
        ]

    @property
    def settle_seconds(self) -> float:  # type: ignore[override]
        return 0.0 if self.capabilities.exclusive else SETTLE_SECONDS

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the filesystem. The first access creates the folder and tests them.

        Raises:
            OSError: the folder cannot be used now.
        """
        if self._capabilities is None:
            self._storage.add_folder(self.folder)
            self._storage.add_folder(self.folder / METADATA)
            self._capabilities = find_capabilities(self.folder / METADATA, self._storage)
        return self._capabilities

    def list(self) -> dict[str, int]:
        """Return the size in bytes of every file, by name; empty if the folder does not exist yet.

        Raises:
            OSError: the folder cannot be read, or existed earlier and is gone.
        """
        if not self.folder.is_dir():
            if self._capabilities is not None or self.folder.exists() or self.folder.is_symlink():
                raise NotADirectoryError(errno.ENOTDIR, "the folder is gone", self.url)
            return {}
        files = {}
        for folder, _, names in os.walk(self.folder, onerror=_raise):
            for name in names:
                path = Path(folder) / name
                try:
                    files[path.relative_to(self.folder).as_posix()] = path.lstat().st_size
                except FileNotFoundError:  # deleted since `os.walk` listed it
                    continue
        return files

    def get(self, name: str, most: int = SMALL) -> bytes:
        return read_small(self.folder / name, most)

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        for name, data in files.items():
            self._write(name, data)
        for name in remove:
            self._storage.remove(self.folder / name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        if not self.capabilities.exclusive and path.exists():
            return False
        try:
            fd = self._storage.begin(path, exclusive=self.capabilities.exclusive)
        except FileExistsError:
            return False
        try:
            self._storage.write(fd, data, 0)
            self._sync(fd)
        finally:
            os.close(fd)
        self._sync_folder(path.parent)
        return True

    def now(self) -> datetime | None:
        path = self._path(f"{METADATA}/clock-{secrets.token_hex(4)}")
        try:
            os.close(self._storage.begin(path))
            return datetime.fromtimestamp(path.stat().st_mtime, UTC)
        finally:
            self._storage.remove(path)

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        nbytes = path.stat().st_size
        final_path = self._path(name)
        target = (
            final_path.with_name(final_path.name + PART) if self.capabilities.rename else final_path
        )
        identity = identity_of(final_path)
        has_final_size = (
            target != final_path and size_of(final_path) == nbytes and is_plain(final_path)
        )
        if has_final_size and name not in self._wrong:
            expected_sha256 = sha256_of_plain(path, _only_stopping(moved))
            if sha256_of_plain(final_path, moved) == expected_sha256:
                return expected_sha256
            self._wrong.add(name)
        uploaded_bytes = self._uploaded_bytes(name, target, nbytes)
        if uploaded_bytes and uploaded_bytes == nbytes and not self.capabilities.extend:
            sent_sha256 = sha256_of_plain(path, _only_stopping(moved))
        else:
            sent_sha256 = self._send(path, target, uploaded_bytes, moved)
        if sha256_of_plain(target, moved) != sent_sha256:
            self._wrong.add(name)
            raise OSError(errno.EIO, "the copy differs from the original", str(target))
        if target != final_path:
            self._rename(target, final_path, identity)
        else:
            self._sync_folder(final_path.parent)
        self._wrong.discard(name)
        return sent_sha256

    def rename(self, name: str, other: str) -> bool:
        source, target = self.folder / name, self._path(other)
        if self.capabilities.rename:
            self._storage.replace(source, target)
            self._sync_folder(target.parent)
            return True
        if not is_plain(source):
            return False
        self._storage.remove(target)  # an earlier attempt may have left it
        sent_sha256 = self._send(source, target, None, lambda nbytes: None)
        if sha256_of_plain(target, lambda nbytes: None) != sent_sha256:
            raise OSError(errno.EIO, "the copy differs from the original", str(target))
        self._sync_folder(target.parent)
        self._storage.remove(source)
        return True

    def sha256(self, name: str, moved: Moved) -> str | None:
        path = self.folder / name
        try:
            return sha256_of_plain(path, moved) if is_plain(path) else None
        except FileNotFoundError:
            return None

    def download(self, name: str, path: Path, moved: Moved) -> None:
        storage = Storage()
        total_bytes = (self.folder / name).stat().st_size
        present_bytes = size_of(path)
        starts_anew = present_bytes is None or present_bytes > total_bytes
        fd = storage.begin(path) if starts_anew else storage.open(path)
        try:
            offset = 0 if starts_anew or present_bytes is None else present_bytes
            for piece in pieces(self.folder / name, offset):
                storage.write(fd, piece, offset)
                offset += len(piece)
                moved(len(piece))
            storage.sync_data(fd)
        finally:
            os.close(fd)

    # One file

    def _uploaded_bytes(self, name: str, target: Path, nbytes: int) -> int | None:
        """Return the number of bytes of an interrupted upload; None if the upload has to start.

        A file that cannot be continued is removed.

        Args:
            name: the name of the file that the upload writes.
            target: the file that the upload writes.
            nbytes: the size in bytes of the complete file.
        """
        uploaded_bytes = size_of(target)
        if uploaded_bytes is None:
            return None
        if (
            not is_plain(target)
            or uploaded_bytes > nbytes
            or name in self._wrong
            or not (self.capabilities.extend or uploaded_bytes == nbytes)
        ):
            self._storage.remove(target)
            self._wrong.discard(name)
            return None
        return uploaded_bytes

    def _send(self, path: Path, target: Path, done: int | None, moved: Moved) -> str:
        """Write the local file from byte `done` on, and return the SHA-256 of the whole local file.

        Args:
            path: the local file.
            target: the file in the store, which the upload begins or continues.
            done: the number of bytes that the target already has; None if it does not exist.
            moved: called with the number of bytes that were written; may raise to stop.

        Raises:
            FileExistsError: the target exists although `done` is None.
        """
        moved(0)  # a process that has lost the lease stops here
        fd = self._begin(target) if done is None else self._storage.open(target)
        done = done or 0
        digest = hashlib.sha256()
        offset = synced_offset = 0
        try:
            for piece in pieces(path):
                digest.update(piece)
                remaining = piece[max(0, done - offset) :]
                offset += len(piece)
                if remaining:
                    self._storage.write(fd, remaining, offset - len(remaining))
                if offset - synced_offset >= SYNC_BYTES:
                    self._sync(fd)
                    synced_offset = offset
                moved(len(remaining))
            self._sync(fd)
            _drop_cached(fd, offset)
        finally:
            os.close(fd)
        return digest.hexdigest()

    def _begin(self, path: Path) -> int:
        """Create a file, and return its descriptor.

        A file that was created since the caller's check is not truncated: if this machine was
        suspended after the check, the machine that took over has written that file.

        Raises:
            FileExistsError: the file exists, on a filesystem with exclusive creation.
        """
        return self._storage.begin(path, exclusive=self.capabilities.exclusive)

    def _write(self, name: str, data: bytes) -> None:
        final_path = self._path(name)
        identity = identity_of(final_path)
        is_atomic = self.capabilities.rename_over or (self.capabilities.rename and identity is None)
        target = final_path.with_name(final_path.name + PART) if is_atomic else final_path
        has_target = size_of(target) is not None
        if has_target and not is_plain(target):
            self._storage.remove(target)
            has_target = False
        fd = self._storage.begin(target) if has_target else self._begin(target)
        try:
            self._storage.write(fd, data, 0)
            self._sync(fd)
            _drop_cached(fd, len(data))
        finally:
            os.close(fd)
        if target.read_bytes() != data:
            raise OSError(errno.EIO, "the copy differs from the original", str(target))
        if is_atomic:
            self._rename(target, final_path, identity)
        else:
            self._sync_folder(final_path.parent)

    def _rename(self, source: Path, target: Path, before: Identity | None) -> None:
        """Rename a file to its final name.

        If the filesystem cannot rename over another file, the old file is removed first. This is
        done only if it is still `before`: any other file was written by a machine that took over.

        Args:
            source: the complete file, under its temporary name.
            target: the path with the final name.
            before: the identity of the file with the final name when the caller began to write;
                None if no file had that name.

        Raises:
            FileExistsError: another file has the name now.
        """
        if (
            not self.capabilities.rename_over
            and (present_identity := identity_of(target)) is not None
        ):
            if present_identity != before:
                raise FileExistsError(errno.EEXIST, "another machine has written it", str(target))
            self._storage.remove(target)
        self._storage.replace(source, target)
        self._sync_folder(target.parent)

    def _path(self, name: str) -> Path:
        """Return the path for a file's name, and create the folders that it needs."""
        assert self.capabilities
        path = self.folder / name
        for folder in reversed(path.relative_to(self.folder).parents[:-1]):
            if not (self.folder / folder).is_dir():
                self._storage.add_folder(self.folder / folder)
        return path

    def _sync(self, fd: int) -> None:
        if self.capabilities.sync:
            self._storage.sync_data(fd)

    def _sync_folder(self, folder: Path) -> None:
        if self.capabilities.sync_folder:
            self._storage.sync_folder(folder)


def _only_stopping(moved: Moved) -> Moved:
    """Return a callback for local bytes that are only hashed: it reports 0, and can still raise."""
    return lambda nbytes: moved(0)


def _drop_cached(fd: int, nbytes: int) -> None:
    """Drop a file from the page cache, if possible, so that the next read is from the disk."""
    with suppress(OSError):
        drop_from_cache(fd, 0, nbytes)


def _raise(error: OSError) -> None:
    raise error
