"""A store below a prefix of a bucket: the code that is the same for every cloud."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Self

from resumerge.buckets.address import split_address
from resumerge.buckets.base import Listed
from resumerge.buckets.calls import check_library
from resumerge.buckets.errors import Changed, Unsupported
from resumerge.errors import refuse
from resumerge.mirror.stores.base import METADATA, SMALL, Moved, Store, StoreError, safe_name
from resumerge.mirror.stores.buckets.client import BucketClient
from resumerge.storage import Storage

SETTLE_SECONDS = 2.0
"""The seconds after which all concurrent writers have finished, without conditional writes."""


class BucketStore(Store):
    """Objects below a prefix of a bucket.

    A write of an object is atomic, and visible to every later request. Conditional writes make
    `put_if_absent` and `put_if_unchanged` exclusive. The first of these calls tests with a small
    object whether the server supports conditional writes. A server without them cannot hold a
    lease.

    Args:
        url: the normalised address.
        client: makes the requests for names below the prefix.

    Attributes:
        client: the class of the client, set by each subclass.
    """

    client: ClassVar[type[BucketClient]]

    heartbeat_seconds = 20.0

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        bucket, prefix = split_address(address)
        url = f"{cls.scheme}://{bucket}" + (f"/{prefix}" if prefix else "")
        if offline:
            raise refuse(
                "Offline mode is on, and this is a bucket",
                where=url,
                fix="run without --offline",
            )
        check_library(url, "mirrors")
        return cls(url, cls.client(bucket, prefix))

    def __init__(self, url: str, client: BucketClient) -> None:
        self.url = url
        self._client = client
        self._obstacle: str | None = None
        self._probing = threading.Lock()

    # Exclusive writes

    def lease_obstacle(self) -> str:
        with self._probing:
            if self._obstacle is None:
                self._obstacle = self._probe()
            return self._obstacle

    @property
    def settle_seconds(self) -> float:  # type: ignore[override]
        return SETTLE_SECONDS if self.lease_obstacle() else 0.0

    def _probe(self) -> str:
        """Return the fault of the server's conditional writes; empty if they work."""
        name = f"{METADATA}/probe-{secrets.token_hex(4)}-0"
        try:
            self._client.put(name, b"first", absent=True)
            with self._client.read(name) as body:
                first_version = body.version
            if not self._refuses(name, absent=True):
                return "it ignores If-None-Match, so that two machines could hold one lease"
            self._client.put(name, b"second", version=first_version)
            if not self._refuses(name, version=first_version):
                return "it ignores If-Match, so that two machines could hold one lease"
        except Changed:  # the library repeated a request whose response was lost
            raise StoreError(f"An answer of the server of {self.url} was lost") from None
        except Unsupported:
            return "it has no conditional writes, so that two machines could hold one lease"
        finally:
            with suppress(OSError):
                self._client.remove(name)
        return ""

    def _refuses(self, name: str, *, absent: bool = False, version: str = "") -> bool:
        try:
            self._client.put(name, b"third", absent=absent, version=version)
        except Changed:
            return True
        return False

    def put_if_absent(self, name: str, data: bytes) -> bool:
        safe_name(name)
        if self.lease_obstacle():
            if name in self.list():
                return False
            self._client.put(name, data)
            return True
        try:
            self._client.put(name, data, absent=True)
        except Changed:
            return self._holds(name, data)
        return True

    def put_if_unchanged(
        self, name: str, data: bytes, before: bytes | None, remove: Sequence[str] = ()
    ) -> bool:
        safe_name(name)
        if before is None:
            is_written = self.put_if_absent(name, data)
        else:
            is_written = self._replace(name, data, before)
        if is_written:
            self.put({}, remove)
        return is_written

    def _replace(self, name: str, data: bytes, before: bytes) -> bool:
        present_content = bytearray()
        try:
            version = self._read(name, present_content.extend, (data, before))
        except FileNotFoundError:
            return False
        if present_content == data:
            return True
        if present_content != before:
            return False
        try:
            self._client.put(name, data, version="" if self.lease_obstacle() else version)
        except Changed:
            return self._holds(name, data)
        return True

    def _holds(self, name: str, data: bytes) -> bool:
        """Return whether an object has this content, for example because a response was lost."""
        content = bytearray()
        try:
            self._read(name, content.extend, (data,))
        except FileNotFoundError:
            return False
        return content == data

    def _read(
        self,
        name: str,
        take: Callable[[bytes], object],
        expected: Sequence[bytes] = (),
        most: float = SMALL,
    ) -> str:
        """Read a whole object, and compare it with the server's size and hash.

        Args:
            name: the object's name below the prefix.
            take: called with the pieces of the content, in order; not called if the object is
                larger than `most`.
            expected: contents that the caller can verify itself. They are not compared with the
                server's hash.
            most: the largest size in bytes.

        Returns:
            The object's version.

        Raises:
            FileNotFoundError: the object does not exist.
            StoreError: bytes are missing, or differ from the server's.
        """
        md5, nbytes = hashlib.md5(usedforsecurity=False), 0
        with self._client.read(safe_name(name)) as body:
            if body.nbytes > most:
                return body.version
            for piece in body.pieces:
                md5.update(piece)
                nbytes += len(piece)
                take(piece)
        expected_md5s = {hashlib.md5(data, usedforsecurity=False).digest() for data in expected}
        if md5.digest() not in expected_md5s:
            self._client.compare(name, nbytes, md5.hexdigest(), body.version)
        return body.version

    # The files

    def list(self) -> dict[str, int]:
        return {safe_name(name): nbytes for name, nbytes in self._client.list().items()}

    def listed(self, name: str) -> Listed | None:
        """Return the size in bytes and ETag of a file; None if it does not exist.

        Every change of the content changes the ETag.
        """
        return self._client.listed(safe_name(name))

    def get(self, name: str, most: int = SMALL) -> bytes:
        content = bytearray()
        self._read(name, content.extend, most=most)
        return bytes(content)

    def put(self, files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        for name, data in files.items():
            self._client.put(safe_name(name), data)
        for name, data in files.items():
            if not self._holds(name, data):
                raise StoreError(f"{name} in {self.url} differs from what was sent")
        for name in remove:
            self._client.remove(safe_name(name))

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        return self._client.upload(safe_name(name), path, moved)

    def create(self, name: str, path: Path, moved: Moved) -> str | None:
        """Upload a file like `upload`, unless an object with other content has the name.

        If the server ignores conditional writes, an existing object is replaced.

        Returns:
            the SHA-256 of the local bytes in hex digits; None if an object with other content
            exists.
        """
        is_conditional = not self.lease_obstacle()
        try:
            return self._client.upload(safe_name(name), path, moved, absent=is_conditional)
        except Changed:
            return None

    def abandon_uploads(self, names: Iterable[str]) -> None:
        self._client.abandon_uploads(names)

    def rename(self, name: str, other: str) -> bool:
        safe_name(other)
        self._client.copy(safe_name(name), other)
        if self.sha256(name, _ignore) != self.sha256(other, _ignore):
            raise StoreError(f"{other} in {self.url} differs from {name}, which it was copied from")
        self._client.remove(name)
        return True

    def sha256(self, name: str, moved: Moved) -> str | None:
        digest = hashlib.sha256()

        def take(piece: bytes) -> None:
            digest.update(piece)
            moved(len(piece))

        try:
            self._read(name, take, most=math.inf)
        except FileNotFoundError:
            return None
        return digest.hexdigest()

    def download(self, name: str, path: Path, moved: Moved) -> None:
        storage = Storage()
        received_bytes = path.stat().st_size if path.exists() else 0
        total_bytes = self.list().get(safe_name(name))
        if total_bytes is None:
            raise FileNotFoundError(f"{self.url} has no {name}")
        if received_bytes > total_bytes:
            storage.remove(path)
            received_bytes = 0
        fd = storage.open(path) if received_bytes else storage.begin(path)
        try:
            if received_bytes < total_bytes:
                with self._client.read(name, received_bytes) as body:
                    for piece in body.pieces:
                        storage.write(fd, piece, received_bytes)
                        received_bytes += len(piece)
                        moved(len(piece))
            storage.sync_data(fd)
        finally:
            os.close(fd)

    def now(self) -> datetime | None:
        return self._client.now()


def _ignore(nbytes: int) -> None:
    """Ignore the number of bytes that were moved."""
