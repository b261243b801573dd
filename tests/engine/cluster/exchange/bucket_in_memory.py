"""A bucket in memory: a test reads its objects, and makes its requests fail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from resumerge.buckets.base import Body, Listed
from resumerge.buckets.errors import Changed
from resumerge.mirror.stores.base import Moved
from resumerge.mirror.stores.buckets.client import BucketClient
from resumerge.mirror.stores.buckets.store import BucketStore


class MemoryClient(BucketClient):
    """A client of a bucket in memory.

    Attributes:
        there: the objects.
        before: called before each request with its kind and the object's name; may raise.
        after: called after a shard was uploaded.
        abandoned: the names whose parts were removed.
    """

    def __init__(self) -> None:
        self.bucket = "box"
        self.there: dict[str, bytes] = {}
        self.before: Callable[[str, str], object] = lambda kind, name: None
        self.after: Callable[[], object] = lambda: None
        self.abandoned: list[str] = []

    def list(self) -> dict[str, int]:
        self.before("list", "")
        return {name: len(data) for name, data in self.there.items()}

    def listed(self, name: str) -> Listed | None:
        self.before("listed", name)
        return Listed(len(self.there[name]), self._etag(name)) if name in self.there else None

    @contextmanager
    def read(self, name: str, start: int = 0) -> Iterator[Body]:
        self.before("read", name)
        if name not in self.there:
            raise FileNotFoundError(name)
        data = self.there[name]
        pieces = iter([data[start:]])
        yield Body(len(data), self._etag(name), pieces, 200, {}, lambda: None)

    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        self.before("put", name)
        if (absent and name in self.there) or (version and version != self._etag(name)):
            raise Changed
        self.there[name] = data

    def remove(self, name: str) -> None:
        self.before("remove", name)
        self.there.pop(name, None)

    def copy(self, name: str, other: str) -> None:
        self.there[other] = self.there[name]

    def upload(self, name: str, path: Path, moved: Moved, *, absent: bool = False) -> str:
        self.before("upload", name)
        data = path.read_bytes()
        if absent and self.there.get(name, data) != data:
            raise Changed
        moved(len(data))
        self.there[name] = data
        self.after()
        return hashlib.sha256(data).hexdigest()

    def abandon_uploads(self, names: Iterable[str]) -> None:
        self.abandoned += names

    def now(self) -> datetime | None:
        return None

    def _etag(self, name: str) -> str:
        data = self.there.get(name)
        return "" if data is None else hashlib.md5(data, usedforsecurity=False).hexdigest()


class MemoryStore(BucketStore):
    """A mirror in a bucket in memory."""

    scheme, example = "s3", "s3://box/m"
    patience = 0.0

    def __init__(self) -> None:
        self.requests = MemoryClient()
        super().__init__("s3://box/m", self.requests)
