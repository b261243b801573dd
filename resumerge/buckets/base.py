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

from resumerge.buckets.content import Begin

PIECE = 1 << 20
"""Bytes that are read at once."""

CONNECT_TIMEOUT = 10.0

IDLE_TIMEOUT = 60.0
"""A connection that transfers nothing for so many seconds is closed."""


class Listed(NamedTuple):
    """An object in a listing. The ETag differs after every change of the content; no quotes."""

    nbytes: int
    etag: str


@dataclass(frozen=True)
class Body:
    """The answer to a read.

    Args:
        nbytes: of the whole object.
        version: its ETag.
        pieces: the bytes from the start that was asked for; to be read within the context.
        status: of HTTP.
        headers: as of an answer of HTTP: ETag, Content-Range, Content-Length.
        abort: end the transfer from another thread; the reading thread gets an error.
    """

    nbytes: int
    version: str
    pieces: Iterator[bytes]
    status: int
    headers: Mapping[str, str | None]
    abort: Callable[[], None]


class Bucket(ABC):
    """The requests, once each. Objects are named by their keys. Threads may share it.

    Where the server is, and credentials, is found in the environment and the files of the cloud's
    own tools, by the cloud's own library.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the object has another ETag than the one that was asked for.

    Attributes:
        kind: of buckets, for messages.
        library: that makes the requests.
        extra: of this package, which installs it.
        variables: how the names of the variables begin that lead to the server.
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
        """Every object whose key begins with a prefix, by the rest of its key."""

    @abstractmethod
    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        known: Listed | None = None,
        piece: int = PIECE,
    ) -> AbstractContextManager[Body]:
        """Return an object's bytes ``start:stop``.

        Args:
            known: the object that is meant; None for any.
            piece: bytes that are read at once, where the library leaves the choice.
        """

    @abstractmethod
    def nbytes(self, key: str, etag: str) -> int:
        """Return bytes of an object that has this ETag."""

    @abstractmethod
    def check(self, key: str, known: Listed) -> Begin | None:
        """Return what begins to compare an object's content; None if the server says nothing."""

    def api(self) -> Any:
        """Return the library's client; this process's own."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    @abstractmethod
    def _open(self) -> Any:
        """Return a new client."""


def server_name(url: str) -> str:
    """Return the name of an address's server with its port, as a part of a path.

    Raises:
        ValueError: this is no address of HTTP that has them.
    """
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError("no address of a server")
    host = address.hostname.replace(":", "_")
    return f"{host}_{address.port}" if address.port else host
