"""The stores that all machines of a world share: a bucket in memory, and folders in memory that can
do more or less. Each is a store of the program on top of requests that hand over."""

from __future__ import annotations

import errno
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from memory_s3 import MemoryBucket, Server
from virtual_machines import World

from resumerge.mirror.stores.base import METADATA, SMALL, Moved, Store
from resumerge.mirror.stores.buckets.s3 import S3Client, S3Store
from resumerge.mirror.stores.capabilities import Capabilities
from resumerge.mirror.stores.folder import FolderStore
from resumerge.storage import Storage

T = TypeVar("T")
LACKS: dict[str, tuple[str, ...]] = {
    "folder": (),
    "folder without exclusive create": ("exclusive",),
    "folder without rename": ("rename", "rename_over"),
    "folder without rename over a file": ("rename_over",),
    "folder that cannot extend": ("extend", "sync", "sync_folder"),
}
KINDS = ("bucket", *LACKS)


class Shared(ABC):
    """A place for a mirror.

    Attributes:
        exclusive: one of two writers of a lease wins, and a renewal is conditional.
    """

    exclusive = False

    @abstractmethod
    def open(self) -> Store:
        """Return the store, as a process opens it."""

    @abstractmethod
    def names(self) -> set[str]:
        """Return the names of all files."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if it does not exist."""

    @abstractmethod
    def write(self, name: str, data: bytes | None) -> None:
        """Replace or remove a file, as somebody else might."""

    def uploads(self) -> list[str]:
        """Return the keys of unfinished uploads, which are not among the files."""
        return []


class SharedBucket(Shared):
    exclusive = True

    def __init__(self, world: World, *, conditional: bool = True) -> None:
        self._world, self.server = world, Server(conditional)

    def open(self) -> Store:
        client = S3Client("bucket", "")
        client._objects = MemoryBucket(self.server, self._world)  # type: ignore[assignment]
        return S3Store("s3://bucket", client)

    def names(self) -> set[str]:
        return set(self.server.objects)

    def read(self, name: str) -> bytes | None:
        return self.server.objects.get(name, (None, ""))[0]

    def write(self, name: str, data: bytes | None) -> None:
        if data is None:
            self.server.objects.pop(name, None)
        else:
            self.server.write(name, data)

    def uploads(self) -> list[str]:
        return [key for key, _ in self.server.uploads.values()]


class SharedFolder(Shared):
    def __init__(self, world: World, folder: Path, lacks: tuple[str, ...] = ()) -> None:
        self._world, self.folder, self.lacks = world, folder, lacks
        (folder / METADATA).mkdir(parents=True)

    def open(self) -> Store:
        return _Folder(self.folder, self._world, self.lacks)

    def names(self) -> set[str]:
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix() for path in paths}

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | None) -> None:
        if data is None:
            (self.folder / name).unlink(missing_ok=True)
        else:
            (self.folder / name).write_bytes(data)


class _Folder(FolderStore):
    """A folder of which a read is one request, and a change is one for each operation on files."""

    def __init__(self, folder: Path, world: World, lacks: tuple[str, ...]) -> None:
        super().__init__(folder, _Storage(folder, world))
        self._world = world
        every = Capabilities.__dataclass_fields__
        self._capabilities = Capabilities(**{name: name not in lacks for name in every})

    def list(self) -> dict[str, int]:
        return self._read("list", super().list)

    def get(self, name: str, most: int = SMALL) -> bytes:
        get = super().get
        return self._read(f"get {name}", lambda: get(name, most))

    def sha256(self, name: str, moved: Moved) -> str | None:
        moved(0)
        sha256 = super().sha256
        return self._read(f"hash {name}", lambda: sha256(name, lambda nbytes: None))

    def now(self) -> datetime | None:
        return self._world.wall()

    def _read(self, what: str, do: Callable[[], T]) -> T:
        found: T = self._world.request(what, do, fails=_error)
        return found


def _error(how: str) -> Exception:
    return OSError(errno.EIO, how)


class _Storage(Storage):
    """A storage in which each operation on a file of a folder is a request."""

    def __init__(self, folder: Path, world: World) -> None:
        self._folder, self._world = folder, world

    def begin(self, path: Path, *, exclusive: bool = False) -> int:
        begin = super().begin
        return int(self._do("begin", lambda: begin(path, exclusive=exclusive), path))

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        write, path = super().write, Path(f"/proc/self/fd/{fd}").readlink()
        half = memoryview(data)[: len(data) // 2]
        self._do(
            "write", lambda: write(fd, data, offset), path, torn=lambda: write(fd, half, offset)
        )

    def sync_data(self, fd: int) -> None:
        """Do nothing: the power is never cut here."""

    def sync_folder(self, path: Path) -> None:
        """Do nothing, for the reason in `sync_data`."""

    def replace(self, source: Path, target: Path) -> None:
        replace = super().replace
        self._do("replace", lambda: replace(source, target), source, target)

    def remove(self, path: Path) -> None:
        remove = super().remove
        self._do("remove", lambda: remove(path), path)

    def add_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def _do(
        self, what: str, do: Callable[[], Any], *paths: Path, torn: Callable[[], Any] | None = None
    ) -> Any:
        names = tuple(
            path.relative_to(self._folder).as_posix()
            for path in paths
            if path.is_relative_to(self._folder)
        )
        return self._world.request(
            f"{what} {names}", do, fails=_error, changes=names, torn=torn, can_be_late=False
        )


def share(kind: str, world: World, folder: Path) -> Shared:
    """Make a place of one of the kinds."""
    if kind == "bucket":
        return SharedBucket(world)
    return SharedFolder(world, folder / "mirror", LACKS[kind])


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
