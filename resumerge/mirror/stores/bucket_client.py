"""The requests that a bucket has to answer, for `BucketStore`: one class for each protocol."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from resumerge.errors import refuse
from resumerge.mirror.stores.base import Moved, StoreError

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_ODD = re.compile(r"[\0-\x1f\x7f\\]")


class Changed(Exception):
    """The condition of a write is not met: the object exists, or is another one than expected."""


class Unsupported(StoreError):
    """The server says that it does not know what was asked for."""


@dataclass(frozen=True)
class Body:
    """The answer to a read.

    Args:
        nbytes: of the whole object.
        version: its ETag, which differs after every change of its content.
        pieces: the bytes from the start that was asked for; to be read within the context.
    """

    nbytes: int
    version: str
    pieces: Iterator[bytes]


class BucketClient(ABC):
    """One bucket, and the names below one prefix.

    Requests are those of the protocol, once each: an object is written and removed in one step, and
    every request that begins later sees that. Names are `Store`'s, without the prefix.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Unsupported: the server does not know the request.
    """

    @abstractmethod
    def list(self) -> dict[str, int]:
        """Bytes of every object, by name."""

    @abstractmethod
    def read(self, name: str, start: int = 0) -> AbstractContextManager[Body]:
        """An object's bytes from `start` on."""

    @abstractmethod
    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        """Write an object in one request.

        Args:
            absent: only if there is none with this name.
            version: only if the object with this name still has this version.

        Raises:
            Changed: the condition is not met, and nothing was written.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""

    @abstractmethod
    def copy(self, name: str, other: str) -> None:
        """Copy an object, at the server."""

    @abstractmethod
    def upload(self, name: str, path: Path, moved: Moved) -> str:
        """Write a large local file; see `Store.upload`."""

    @abstractmethod
    def abandon_uploads(self, names: Iterable[str]) -> None:
        """Remove the parts that interrupted uploads of these objects have left."""

    @abstractmethod
    def now(self) -> datetime | None:
        """The server's clock."""


def split_address(url: str, scheme: str, example: str) -> tuple[str, str]:
    """The bucket and the prefix of ``scheme://bucket/prefix``; the prefix may be empty.

    Raises:
        InputError: the address is malformed. The message does not repeat what may be a password.
    """
    rest = url.removeprefix(f"{scheme}://").removesuffix("/")
    bucket, _, prefix = rest.partition("/")
    parts = prefix.split("/") if prefix else []
    shown, fix = url, "check the spelling"
    if "@" in bucket:
        shown = f"{scheme}://…@{bucket.rpartition('@')[2]}"
        fix = "remove what stands before @: credentials come from the environment"
    elif _BUCKET.fullmatch(bucket) and not _has_odd(parts):
        return bucket, prefix
    raise refuse(
        "This is not the address of a place in a bucket", where=shown, expected=example, fix=fix
    )


def checked(name: str) -> str:
    """The name of a file in a mirror, unchanged.

    Raises:
        InputError: as a path, it leads out of a folder.
    """
    if _has_odd(name.split("/")):
        raise refuse(
            "The name of a file points outside of the mirror",
            found=repr(name[:200]),
            fix="do not use this mirror: somebody has tampered with it",
        )
    return name


def _has_odd(parts: list[str]) -> bool:
    return not all(parts) or bool({".", ".."} & set(parts)) or any(map(_ODD.search, parts))
