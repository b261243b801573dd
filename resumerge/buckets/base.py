"""The reading requests of a bucket, whatever the cloud: `sources/` and the mirror need them."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from resumerge.buckets.content_hash import Begin
from resumerge.buckets.errors import not_understood

BODY_PIECE_BYTES = 1 << 20
"""The number of bytes of a body that are read at once, where a caller asks for no other."""

CONNECT_TIMEOUT = 10.0

IDLE_TIMEOUT = 60.0
"""The seconds after which a connection that transfers nothing is closed."""


class Listed(NamedTuple):
    """An object in a listing. Every change of the content changes the ETag, which has no quotes."""

    nbytes: int
    etag: str


@dataclass(frozen=True)
class Body:
    """The answer to a read.

    Args:
        nbytes: the size of the whole object.
        version: the object's ETag.
        pieces: the bytes from the start that was asked for; to be read within the context.
        status: the status of HTTP.
        headers: the headers as HTTP has them: ETag, Content-Range, Content-Length.
        abort: ends the transfer from another thread; the reading thread gets an error.
    """

    nbytes: int
    version: str
    pieces: Iterator[bytes]
    status: int
    headers: Mapping[str, str | None]
    abort: Callable[[], None]


class Bucket(ABC):
    """The requests of one bucket. Each is made once. Threads may share a bucket.

    Objects are named by their keys. The server's address and the credentials are found in the
    environment and the files of the cloud's own tools, by the cloud's own library.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the object has another ETag than the one that was asked for.

    Attributes:
        kind: the kind of buckets, for messages.
        library: the name of the library that makes the requests.
        extra: the extra of this package that installs the library.
        variables: the beginnings of the names of the variables that lead to the server.
    """

    kind: ClassVar[str]
    library: ClassVar[str]
    extra: ClassVar[str]
    variables: ClassVar[tuple[str, ...]]

    def __init__(self, name: str) -> None:
        self.name = name
        self._opening = threading.Lock()
        self._opened: tuple[int, Any] | None = None
        """The process, and its client: connections do not survive a fork."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The server's name, as a part of a path. Neither credentials nor the server are needed."""

    @abstractmethod
    def list(self, prefix: str) -> dict[str, Listed]:
        """Return every object whose key begins with a prefix, by the rest of its key."""

    @abstractmethod
    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        known: Listed | None = None,
        piece: int = BODY_PIECE_BYTES,
    ) -> AbstractContextManager[Body]:
        """Return an object's bytes ``start:stop``.

        Args:
            key: the object's key.
            start: the offset of the first byte.
            stop: the offset after the last byte; None for the end.
            known: the listed object that is meant; None for any version.
            piece: the number of bytes that are read at once, where the library leaves the choice.
        """

    @abstractmethod
    def nbytes(self, key: str, etag: str) -> int:
        """Return the size in bytes of an object that has this ETag."""

    @abstractmethod
    def check(self, key: str, known: Listed) -> Begin | None:
        """Return a function that begins a check of an object's content; None without any hash."""

    def api(self) -> Any:
        """Return the library's client. Each process has its own."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    @abstractmethod
    def _open(self) -> Any:
        """Return a new client."""


def stated(bucket: str, nbytes: Any, etag: Any) -> Listed:
    """Return an object as a server states it.

    Args:
        bucket: the bucket's name.
        nbytes: the size in bytes.
        etag: the ETag, with quotes or without.

    Raises:
        StoreError: size or ETag is missing.
    """
    if nbytes is None or not etag:
        raise not_understood(bucket, "an object without " + ("ETag" if not etag else "size"))
    return Listed(int(nbytes), str(etag).strip('"'))


def server_name(url: str) -> str:
    """Return the name of an address's server with its port, as a part of a path.

    Raises:
        ValueError: the address is none of HTTP, or has no host.
    """
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError("no address of a server")
    host = address.hostname.replace(":", "_")
    return f"{host}_{address.port}" if address.port else host
