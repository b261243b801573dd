"""The requests that a bucket has to answer, for `BucketStore`: one class for each protocol."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from resumerge.buckets.base import Body, Bucket, Listed
from resumerge.buckets.content_hash import HashCheck
from resumerge.buckets.errors import Changed
from resumerge.buckets.ranges import RangedBucket
from resumerge.digests import CHUNK
from resumerge.mirror.stores.base import Moved, StoreError


class BucketClient(ABC):
    """One bucket, and the names below one prefix.

    Each method makes requests of the protocol without repeating them. An object is written and
    removed in one step, which every later request sees. Names are those of `Store`, without the
    prefix.

    Args:
        bucket: the bucket's name.
        prefix: the prefix without a ``/`` at its end; may be empty.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Unsupported: the server does not know the request.
    """

    objects: ClassVar[type[Bucket]]
    """The class with the requests that read."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self._objects = self.objects(bucket)
        self._prefix = f"{prefix}/" if prefix else ""

    def list(self) -> dict[str, int]:
        """Return the bytes of every object, by name."""
        found = self._objects.list(self._prefix)
        return {name: listed.nbytes for name, listed in found.items()}

    def listed(self, name: str) -> Listed | None:
        """Return an object as the server lists it; None if there is none."""
        return self._objects.list(self._prefix + name).get("")

    def read(self, name: str, start: int = 0) -> AbstractContextManager[Body]:
        """Return an object's bytes from `start` on."""
        return self._objects.read(self._prefix + name, start)

    def compare(self, name: str, nbytes: int, md5: str, version: str) -> None:
        """Compare the bytes that were read of a whole object with the server's size and hash.

        Args:
            name: the object's name.
            nbytes: the number of bytes that were read.
            md5: their MD5 in hexadecimal digits.
            version: the object's ETag. If it is that MD5, no request is made.

        Raises:
            StoreError: bytes are missing, or differ from the server's.
        """
        etag = version.strip('"')
        if etag == md5:
            return
        listed = self.listed(name)
        if listed is None:
            raise FileNotFoundError(f"{self.bucket} has no {name}")
        if etag and listed.etag and listed.etag != etag:  # another version, put there since
            return
        if listed.nbytes != nbytes:
            raise StoreError(f"{nbytes} of {listed.nbytes} bytes of {name} in {self.bucket} came")
        try:
            begin = self._objects.check(self._prefix + name, listed)
        except Changed:  # likewise
            return
        check = begin() if begin else None
        if isinstance(check, HashCheck) and check.contradicts(md5):
            raise StoreError(f"What came of {name} in {self.bucket} does not have its hash")

    @abstractmethod
    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        """Write an object in one request.

        Args:
            name: the object's name.
            data: the content.
            absent: whether to write only if no object has this name.
            version: the version that an object with this name must still have; empty for any.

        Raises:
            Changed: the condition is not met, and nothing was written.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""

    @abstractmethod
    def copy(self, name: str, other: str) -> None:
        """Copy an object to another name, at the server."""

    @abstractmethod
    def upload(self, name: str, path: Path, moved: Moved, *, absent: bool = False) -> str:
        """Write a large local file; see `Store.upload`.

        Args:
            name: the object's name.
            path: the local file.
            moved: gets the number of bytes that were moved; may raise to stop.
            absent: whether to write only if no object has this name, or one with the same content.

        Raises:
            Changed: the condition is not met, and nothing was written.
        """

    @abstractmethod
    def abandon_uploads(self, names: Iterable[str]) -> None:
        """Remove the parts that interrupted uploads of these objects have left."""

    @abstractmethod
    def now(self) -> datetime | None:
        """Return the time by the server's clock; None if it does not say."""


def sha256_if_there(bucket: RangedBucket, key: str, path: Path, moved: Moved) -> str:
    """Return the SHA-256 of a local file if an object has its size and its hash; else empty.

    Args:
        bucket: the bucket.
        key: the object's key.
        path: the local file.
        moved: called with 0 now and then; may raise to stop.
    """
    try:
        found, expected = bucket.head(key)
    except FileNotFoundError:
        return ""
    if expected is None or found.nbytes != path.stat().st_size:
        return ""
    digest, sha256 = expected[0](), hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            sha256.update(piece)
            moved(0)
    return sha256.hexdigest() if digest.hexdigest() == expected[1].hex() else ""
