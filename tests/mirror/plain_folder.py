"""A store that is a folder and nothing else, which can be made to fail."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from resumerge.mirror.stores.base import SMALL, Moved, Store


class PlainFolder(Store):
    """A plain folder as a store, which a test can make fail.

    Args:
        fails: called with the name of each operation; may raise.
    """

    scheme = "plain"
    example = "plain:///a/folder"
    heartbeat_seconds = 10.0

    def __init__(self, folder: Path, fails: Callable[[str], None] = lambda name: None) -> None:
        self.folder, self.fails = folder, fails
        self.url = str(folder)
        self.clock: datetime | None = None
        folder.mkdir(exist_ok=True)

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> PlainFolder:
        return cls(Path(address))

    def now(self) -> datetime | None:
        return self.clock

    def list(self) -> dict[str, int]:
        self.fails("list")
        sizes = {}
        for path in self.folder.rglob("*"):
            with suppress(FileNotFoundError):  # another has just given it its name
                if path.is_file():
                    sizes[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return sizes

    def get(self, name: str, most: int = SMALL) -> bytes:
        self.fails("get")
        data = (self.folder / name).read_bytes()
        return data if len(data) <= most else b""

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        self.fails("put")
        for name, data in files.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            fresh = self.folder / f"{name}.{os.getpid()}.new"  # another may write it just now
            fresh.write_bytes(data)
            fresh.replace(self.folder / name)
        for name in remove:
            (self.folder / name).unlink(missing_ok=True)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.fails("put_if_absent")
        (self.folder / name).parent.mkdir(exist_ok=True)
        try:
            with (self.folder / name).open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        shutil.copyfile(path, self.folder / name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def sha256(self, name: str, moved: Moved) -> str | None:
        path = self.folder / name
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None

    def download(self, name: str, path: Path, moved: Moved) -> None:
        shutil.copyfile(self.folder / name, path)


class Weak(PlainFolder):
    """A plain folder that cannot test, when it writes a file, whether the file exists."""

    settle_seconds = 0.4

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.put({name: data})
        return True
