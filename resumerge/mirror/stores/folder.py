"""A mirror in a folder: a mounted Drive, a network share, another disk.

Nothing is asked of its filesystem but files that are written from beginning to end and read back.
What more it can do is found by trying (`abilities.py`) and then used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from resumerge.errors import Problem
from resumerge.mirror.stores.base import METADATA, Moved, Store
from resumerge.mirror.stores.capabilities import Capabilities, probe
from resumerge.storage import Storage, drop_from_cache

PIECE = 1 << 20
"""Bytes that are moved at once: what is held in memory, and the grain of stopping and of pace."""

SYNC_BYTES = 64 << 20
"""Bytes of an upload that may be on their way to the disk: the kernel does not bound those of a
slow one."""

SETTLE_SECONDS = 2.0
"""Where files cannot be made exclusively: in this time others see what was written."""

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe that somebody put there does not keep who opens it waiting."""

PART = ".part"
"""At the end of the name of a file that is not whole."""


class FolderStore(Store):
    """Files in a folder.

    Every change is an operation of `Storage`. The folder itself is made on the first change, the
    ones above it are not: a drive that is not mounted must not be taken for an empty one.
    """

    scheme = ""
    example = "a folder whose parent exists"
    heartbeat_seconds = 10.0

    def __init__(self, folder: Path, storage: Storage | None = None) -> None:
        self.folder = folder
        self.url = str(folder)
        self._storage = storage or Storage()
        self._abilities: Capabilities | None = None
        self._wrong: set[str] = set()
        """Uploads that did not arrive as they were sent, and are begun anew."""

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
                    fix="name a folder, or a repo of the Hub",
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
        return 0.0 if self.abilities.exclusive else SETTLE_SECONDS

    @property
    def abilities(self) -> Capabilities:
        """What the filesystem can do; tried when it is first asked for.

        Raises:
            OSError: the folder cannot be used now.
        """
        if self._abilities is None:
            self._storage.add_folder(self.folder)
            self._storage.add_folder(self.folder / METADATA)
            self._abilities = probe(self.folder / METADATA, self._storage)
        return self._abilities

    def list(self) -> dict[str, int]:
        """Bytes of every file, by name; none where there is no such folder, nor one above it.

        Raises:
            OSError: it cannot be read, or was there and is gone.
        """
        if not self.folder.is_dir():
            if self._abilities is not None or self.folder.exists() or self.folder.is_symlink():
                raise NotADirectoryError(errno.ENOTDIR, "the folder is gone", self.url)
            return {}
        found = {}
        for store, _, names in os.walk(self.folder, onerror=_raise):
            for name in names:
                path = Path(store) / name
                try:
                    found[path.relative_to(self.folder).as_posix()] = path.lstat().st_size
                except FileNotFoundError:  # removed since
                    continue
        return found

    def get(self, name: str) -> bytes:
        """A small file; of what is none (a link, a pipe), nothing."""
        path = self.folder / name
        if not _is_plain(path):
            return b""
        with os.fdopen(os.open(path, _READ), "rb") as file:
            fd = file.fileno()
            return file.read() if stat.S_ISREG(os.fstat(fd).st_mode) else b""

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        for name, data in files.items():
            self._write(name, data)
        for name in remove:
            self._storage.remove(self.folder / name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        if not self.abilities.exclusive and path.exists():
            return False
        try:
            fd = self._storage.begin(path, exclusive=self.abilities.exclusive)
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
        final = self._path(name)
        target = final.with_name(final.name + PART) if self.abilities.rename else final
        whole = target != final and _size(final) == nbytes and _is_plain(final)
        if whole and name not in self._wrong:
            expected = _sha256(path, _silent(moved))
            if _sha256(final, moved) == expected:
                return expected
            self._wrong.add(name)
        there = self._begun(name, target, nbytes)
        if 0 < there == nbytes and not self.abilities.extend:
            sent = _sha256(path, _silent(moved))
        else:
            sent = self._send(path, target, there, moved)
        if _sha256(target, moved) != sent:
            self._wrong.add(name)
            raise OSError(errno.EIO, "what arrived is not what was sent", str(target))
        if target != final:
            self._rename(target, final)
        self._wrong.discard(name)
        return sent

    def rename(self, name: str, other: str) -> bool:
        source, target = self.folder / name, self._path(other)
        if self.abilities.rename:
            self._storage.replace(source, target)
            self._sync_folder(target.parent)
            return True
        if not _is_plain(source):
            return False
        sent = self._send(source, target, 0, lambda nbytes: None)
        if _sha256(target, lambda nbytes: None) != sent:
            raise OSError(errno.EIO, "what arrived is not what was sent", str(target))
        self._storage.remove(source)
        return True

    def sha256(self, name: str, moved: Moved) -> str | None:
        path = self.folder / name
        try:
            return _sha256(path, moved) if _is_plain(path) else None
        except FileNotFoundError:
            return None

    def download(self, name: str, path: Path, moved: Moved) -> None:
        here = Storage()
        nbytes = (self.folder / name).stat().st_size
        done = _size(path)
        fresh = done is None or done > nbytes
        fd = here.begin(path) if fresh else here.open(path)
        try:
            offset = 0 if fresh or done is None else done
            for piece in _pieces(self.folder / name, offset):
                here.write(fd, piece, offset)
                offset += len(piece)
                moved(len(piece))
            here.sync_data(fd)
        finally:
            os.close(fd)

    # One file

    def _begun(self, name: str, target: Path, nbytes: int) -> int:
        """How many bytes of an upload are there from an earlier call, to go on after."""
        there = _size(target)
        if there is None:
            return 0
        if (
            not _is_plain(target)
            or there > nbytes
            or name in self._wrong
            or not (self.abilities.extend or there == nbytes)
        ):
            self._storage.remove(target)
            self._wrong.discard(name)
            return 0
        return there

    def _send(self, path: Path, target: Path, there: int, moved: Moved) -> str:
        """Write what is lacking; the SHA-256 of all of the local file."""
        moved(0)  # whoever may not write here any more stops now
        fd = self._storage.open(target) if there else self._storage.begin(target)
        digest = hashlib.sha256()
        offset = synced = 0
        try:
            for piece in _pieces(path):
                digest.update(piece)
                lacking = piece[max(0, there - offset) :]
                offset += len(piece)
                if lacking:
                    self._storage.write(fd, lacking, offset - len(lacking))
                if offset - synced >= SYNC_BYTES:
                    self._sync(fd)
                    synced = offset
                moved(len(lacking))
            self._sync(fd)
            _read_anew(fd, offset)
        finally:
            os.close(fd)
        return digest.hexdigest()

    def _write(self, name: str, data: bytes) -> None:
        final = self._path(name)
        whole = self.abilities.rename_over or (self.abilities.rename and _size(final) is None)
        target = final.with_name(final.name + PART) if whole else final
        if _size(target) is not None and not _is_plain(target):
            self._storage.remove(target)
        fd = self._storage.begin(target)
        try:
            self._storage.write(fd, data, 0)
            self._sync(fd)
            _read_anew(fd, len(data))
        finally:
            os.close(fd)
        if target.read_bytes() != data:
            raise OSError(errno.EIO, "what arrived is not what was sent", str(target))
        if whole:
            self._rename(target, final)
        else:
            self._sync_folder(final.parent)

    def _rename(self, source: Path, target: Path) -> None:
        if not self.abilities.rename_over and _size(target) is not None:
            self._storage.remove(target)
        self._storage.replace(source, target)
        self._sync_folder(target.parent)

    def _path(self, name: str) -> Path:
        """Where a file is to be written; folders inside the mirror are made."""
        assert self.abilities
        path = self.folder / name
        for folder in reversed(path.relative_to(self.folder).parents[:-1]):
            if not (self.folder / folder).is_dir():
                self._storage.add_folder(self.folder / folder)
        return path

    def _sync(self, fd: int) -> None:
        if self.abilities.sync:
            self._storage.sync_data(fd)

    def _sync_folder(self, folder: Path) -> None:
        if self.abilities.sync_folder:
            self._storage.sync_folder(folder)


def _pieces(path: Path, offset: int = 0) -> Iterator[memoryview]:
    """A file's bytes from a place in it on, in one buffer that is used again."""
    buffer = memoryview(bytearray(PIECE))
    fd = os.open(path, _READ)
    try:
        while count := os.preadv(fd, [buffer], offset):
            yield buffer[:count]
            offset += count
    finally:
        os.close(fd)


def _sha256(path: Path, moved: Moved) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
        moved(len(piece))
    return digest.hexdigest()


def _silent(moved: Moved) -> Moved:
    """For bytes that are read here: nothing is moved, but who asks to stop is heard."""
    return lambda nbytes: moved(0)


def _size(path: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return None


def _is_plain(path: Path) -> bool:
    """Whether this is a file, and no link, pipe or device.

    Raises:
        FileNotFoundError: there is nothing.
    """
    return stat.S_ISREG(path.lstat().st_mode)


def _read_anew(fd: int, nbytes: int) -> None:
    """Let what is read next come from the disk, where that can be."""
    with suppress(OSError):
        drop_from_cache(fd, 0, nbytes)


def _raise(error: OSError) -> None:
    raise error
