"""A bucket of Google Cloud Storage in memory, with the calls of google-cloud-storage that a mirror
makes."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.api_core.exceptions import NotFound, PreconditionFailed

from resumerge.buckets.google import GoogleBucket
from resumerge.mirror.stores.buckets.google import GoogleClient, GoogleStore


@dataclass
class Server:
    """One bucket.

    Attributes:
        objects: bytes and generation, by key.
        asked: the requests, in order: the call and the key.
        rewrites: how many more times a copy has to be requested.
        keeps: the share of each upload that arrives.
        at: the time by its clock.
    """

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    rewrites: int = 0
    keeps: float = 1.0
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1000))

    def write(self, key: str, data: bytes) -> None:
        self.objects[key] = data, next(self._numbers)

    def check(self, key: str, generation: int | None) -> None:
        """Refuse a request whose condition is not met."""
        there = self.objects.get(key, (b"", 0))[1]
        if generation is not None and generation != there:
            raise PreconditionFailed("conditionNotMet")  # type: ignore[no-untyped-call]


class Blob:
    """The library's object."""

    def __init__(self, server: Server, name: str, generation: int | None = None) -> None:
        self._server, self.name, self.generation = server, name, generation
        self.size: int | None = None
        self.md5_hash = self.crc32c = ""
        self.chunk_size: int | None = None
        self.updated: datetime | None = None

    def _there(self, call: str) -> tuple[bytes, int]:
        self._server.asked.append((call, self.name))
        if self.name not in self._server.objects:
            raise NotFound("notFound")  # type: ignore[no-untyped-call]
        return self._server.objects[self.name]

    def _state(self, data: bytes, generation: int) -> None:
        self.size, self.generation, self.updated = len(data), generation, self._server.at
        self.md5_hash = base64.b64encode(hashlib.md5(data).digest()).decode()

    def reload(self, **_: Any) -> None:
        self._state(*self._there("reload"))

    def upload_from_string(
        self, data: bytes, *, checksum: str, if_generation_match: int | None, **_: Any
    ) -> None:
        self._server.asked.append(("put", self.name))
        self._server.check(self.name, if_generation_match)
        self._server.write(self.name, data)
        self.reload()

    def upload_from_file(
        self,
        file: Any,
        *,
        size: int,
        checksum: str,
        if_generation_match: int | None,
        **_: Any,
    ) -> None:
        self._server.asked.append(("upload", self.name))
        assert self.chunk_size
        sent = b""
        while len(sent) < size and (piece := file.read(self.chunk_size)):
            sent += piece
        self._server.check(self.name, if_generation_match)
        self._server.write(self.name, sent[: int(len(sent) * self._server.keeps)])
        self.reload()

    def delete(self, **_: Any) -> None:
        self._there("delete")
        del self._server.objects[self.name]

    def rewrite(self, source: Blob, token: str | None, **_: Any) -> tuple[str | None, int, int]:
        data = source._there("rewrite")[0]
        self._server.rewrites -= 1
        if self._server.rewrites >= 0:
            return f"{token or ''}+", 0, len(data)
        self._server.write(self.name, data)
        return None, len(data), len(data)

    def download_as_bytes(self, *, start: int, end: int, **_: Any) -> bytes:
        data, generation = self._there("download")
        if generation != self.generation:
            raise NotFound("this generation")  # type: ignore[no-untyped-call]
        return data[start : end + 1]


class Api:
    """The library's bucket."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def blob(self, name: str, generation: int | None = None) -> Blob:
        return Blob(self._server, name, generation)

    def list_blobs(self, *, prefix: str, fields: str, **_: Any) -> Iterator[Blob]:
        self._server.asked.append(("list", prefix))
        for name, state in sorted(self._server.objects.items()):
            if name.startswith(prefix):
                blob = Blob(self._server, name)
                blob._state(*state)
                yield blob


class MemoryBucket(GoogleBucket):
    """A bucket of a server in memory."""

    def __init__(self, server: Server) -> None:
        super().__init__("box")
        self._api = Api(server)

    def api(self) -> Api:
        return self._api


def open_bucket(server: Server) -> GoogleStore:
    """Return the store below the prefix `p`, as a new process opens it."""
    client = GoogleClient("box", "p")
    client._objects = MemoryBucket(server)
    return GoogleStore("gs://box/p", client)
