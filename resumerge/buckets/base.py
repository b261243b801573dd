"""The interface for reading from a bucket of any cloud."""

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
"""The default number of bytes of a body that are read at once."""

CONNECT_TIMEOUT = 10.0

IDLE_TIMEOUT = 60.0
"""The seconds after which a connection that transfers nothing is closed."""


class Listed(NamedTuple):
    """An object in a listing: its size in bytes, and its ETag without quotes.

    Every change of the content changes the ETag.
    """

    nbytes: int
    etag: str


@dataclass(frozen=True)
class Body:
    """The response to a read request.

    Args:
        nbytes: the size in bytes of the whole object.
        version: the object's ETag.
        pieces: the requested bytes, in order; they can only be read within the context.
        status: the HTTP status: 200 for the whole object, 206 for a range of it.
        headers: the HTTP headers ETag, Content-Range and Content-Length.
        abort: ends the transfer from another thread; the reading thread gets an error.
    """

    nbytes: int
    version: str
    pieces: Iterator[bytes]
    status: int
    headers: Mapping[str, str | None]
    abort: Callable[[], None]


class Bucket(ABC):
    """The reading requests to one bucket. Several threads may share an instance.

    Objects are identified by their keys. The cloud's own library makes the requests. It reads the
    server's address and the credentials from the environment and from the configuration files of
    the cloud's own tools. It may repeat a failed request for some seconds; the methods do not.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Changed: the object's ETag is not the expected one.

    Attributes:
        kind: the kind of buckets, for messages.
        library: the name of the library's module.
        extra: the extra of this package that installs the library.
        variables: prefixes of environment variables that can change the server or credentials.
    """

    kind: ClassVar[str]
    library: ClassVar[str]
    extra: ClassVar[str]
    variables: ClassVar[tuple[str, ...]]

    def __init__(self, name: str) -> None:
        self.name = name
        self._opening = threading.Lock()
        self._opened: tuple[int, Any] | None = None
        """The id of the process that opened the client, and the client; None before `api`.

        Connections cannot be used after a fork.
        """

    @property
    @abstractmethod
    def server(self) -> str:
        """The server's name, usable in a path. It is found without credentials or requests."""

    @abstractmethod
    def list(self, prefix: str) -> dict[str, Listed]:
        """Return every object whose key begins with a prefix, by the key without that prefix."""

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
        """Open an object to read bytes ``start:stop``.

        Args:
            key: the object's key, which is its whole name in the bucket.
            start: the offset of the first byte.
            stop: the offset after the last byte; None for the end.
            known: the expected version, from a listing; None for any version.
            piece: the number of bytes that are read at once, if the library supports a choice.
        """

    @abstractmethod
    def nbytes(self, key: str, etag: str) -> int:
        """Return the size in bytes of an object, which must have this ETag."""

    @abstractmethod
    def check(self, key: str, known: Listed) -> Begin | None:
        """Return a function that begins a check of an object's content.

        Args:
            key: the object's key, which is its whole name in the bucket.
            known: the expected version of the object.

        Returns:
            the function; None if the server has no hash that can be compared.
        """

    def api(self) -> Any:
        """Return the library's client; it is opened once in each process."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    @abstractmethod
    def _open(self) -> Any:
        """Return a new client of the library."""


def stated(bucket: str, nbytes: Any, etag: Any) -> Listed:
    """Return the `Listed` for the size and ETag in a server's response.

    Args:
        bucket: the bucket's name, for messages.
        nbytes: the size in bytes; None if missing.
        etag: the ETag, with quotes or without; None or empty if missing.

    Raises:
        StoreError: size or ETag is missing.
    """
    if nbytes is None or not etag:
        raise not_understood(bucket, "an object without " + ("ETag" if not etag else "size"))
    return Listed(int(nbytes), str(etag).strip('"'))


def server_name(url: str) -> str:
    """Return the host and port of a URL as one text that is usable in a path.

    Raises:
        ValueError: the URL has another scheme than HTTP's, or no host.
    """
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError("no address of a server")
    host = address.hostname.replace(":", "_")
    return f"{host}_{address.port}" if address.port else host
