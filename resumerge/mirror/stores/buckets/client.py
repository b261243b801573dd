"""The requests to a bucket that `BucketStore` needs: one class for each protocol."""

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
    """The requests to one bucket, for the names below one prefix.

    The methods do not repeat a failed request, but the cloud's library may. Writing and removing an
    object are atomic, and every later request sees the change. Names are those of `Store`, without
    the prefix.

    Args:
        bucket: the name of the bucket, or of Azure's container.
        prefix: the prefix without a ``/`` at its end; may be empty.

    Raises (all methods):
        FileNotFoundError: the object does not exist.
        StoreError: the server cannot be reached, fails or refuses.
        Unsupported: the server does not support the request.
    """

    objects: ClassVar[type[Bucket]]
    """The class with the reading requests."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self._objects = self.objects(bucket)
        self._prefix = f"{prefix}/" if prefix else ""

    def list(self) -> dict[str, int]:
        """Return the size in bytes of every object, by name."""
        objects = self._objects.list(self._prefix)
        return {name: listing.nbytes for name, listing in objects.items()}

    def listed(self, name: str) -> Listed | None:
        """Return the server's listing of an object; None if the object does not exist."""
        return self._objects.list(self._prefix + name).get("")

    def read(self, name: str, start: int = 0) -> AbstractContextManager[Body]:
        """Open an object for reading from byte `start` on."""
        return self._objects.read(self._prefix + name, start)

    def compare(self, name: str, nbytes: int, md5: str, version: str) -> None:
        """Compare the bytes of a whole object, as read, with the server's size and hash.

        Args:
            name: the object's name below the prefix.
            nbytes: the number of bytes that were read.
            md5: the MD5 of these bytes in hex digits.
            version: the object's ETag. If it equals `md5`, no request is made.

        Raises:
            StoreError: bytes are missing, or differ from the server's.
        """
        etag = version.strip('"')
        if etag == md5:
            return
        listing = self.listed(name)
        if listing is None:
            raise FileNotFoundError(f"{self.bucket} has no {name}")
        if etag and listing.etag and listing.etag != etag:  # another version was written since
            return
        if listing.nbytes != nbytes:
            raise StoreError(f"{nbytes} of {listing.nbytes} bytes of {name} in {self.bucket} came")
        try:
            start_check = self._objects.check(self._prefix + name, listing)
        except Changed:  # another version was written since the listing
            return
        hash_check = start_check() if start_check else None
        if isinstance(hash_check, HashCheck) and hash_check.contradicts(md5):
            raise StoreError(f"What came of {name} in {self.bucket} does not have its hash")

    @abstractmethod
    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        """Write an object in one request.

        Args:
            name: the object's name below the prefix.
            data: the whole content of the object.
            absent: whether to write only if no object has this name.
            version: the version that the object must still have; empty for no condition.

        Raises:
            Changed: the condition is not met, and nothing was written.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""

    @abstractmethod
    def copy(self, name: str, other: str) -> None:
        """Copy an object to another name, on the server."""

    @abstractmethod
    def upload(self, name: str, path: Path, moved: Moved, *, absent: bool = False) -> str:
        """Write a large local file; see `Store.upload`.

        Args:
            name: the object's name below the prefix.
            path: the local file.
            moved: called with the number of bytes that were moved; may raise to stop.
            absent: whether to write only if no object with other content has this name.

        Raises:
            Changed: the condition is not met, and nothing was written.
        """

    @abstractmethod
    def abandon_uploads(self, names: Iterable[str]) -> None:
        """Remove the parts of interrupted uploads of these objects."""

    @abstractmethod
    def now(self) -> datetime | None:
        """Return the time by the server's clock; None if its response contains no time."""


def sha256_if_stored(bucket: RangedBucket, key: str, path: Path, moved: Moved) -> str:
    """Return the SHA-256 of a local file if an object has the same content; empty otherwise.

    Sizes are compared, and then the hash that the server stores with the object.

    Args:
        bucket: the bucket that may have the object.
        key: the object's key, with the store's prefix.
        path: the local file.
        moved: called with 0 between the pieces that are hashed; may raise to stop.
    """
    try:
        listing, expected_hash = bucket.head(key)
    except FileNotFoundError:
        return ""
    if expected_hash is None or listing.nbytes != path.stat().st_size:
        return ""
    digest, sha256 = expected_hash[0](), hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            sha256.update(piece)
            moved(0)
    return sha256.hexdigest() if digest.hexdigest() == expected_hash[1].hex() else ""
