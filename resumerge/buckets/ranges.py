"""Buckets whose library cannot stream: it returns a range only when the whole range has arrived."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from resumerge.buckets.base import BODY_PIECE_BYTES, Body, Bucket, Listed
from resumerge.buckets.content_hash import Begin, HashCheck
from resumerge.buckets.errors import Changed
from resumerge.digests import Digest
from resumerge.errors import StoreError

RANGE = 4 << 20
"""The bytes per request, which are held in memory."""

ATTEMPTS = 10
"""The most tries to begin reading an object that is replaced during each try."""

Hash = tuple[Callable[[], Digest], bytes]
"""A function that returns a new digest, and the expected hash in bytes."""


class RangedBucket(Bucket):
    """A bucket that reads one version of an object by requests of `RANGE` bytes."""

    @contextmanager
    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        known: Listed | None = None,
        piece: int = BODY_PIECE_BYTES,
    ) -> Iterator[Body]:
        listing, first_range = (known, b"") if known else self._newest(key, start, stop)
        is_part = bool(start) or stop is not None
        stop = listing.nbytes if stop is None else min(stop, listing.nbytes)
        abort_event = threading.Event()

        def pieces() -> Iterator[bytes]:
            if first_range:
                yield first_range
            for offset in range(start + len(first_range), stop, RANGE):
                try:
                    range_bytes = self._whole_range(
                        key, offset, min(stop, offset + RANGE), listing.etag
                    )
                except Changed:
                    if known:
                        raise
                    self.head(key)  # raises the right error if the object is gone
                    raise StoreError(
                        f"{key} in {self.name} was replaced while it was read"
                    ) from None
                if abort_event.is_set():
                    raise StoreError(f"Reading {key} in {self.name} was ended")
                yield range_bytes

        headers: dict[str, str | None] = {
            "ETag": f'"{listing.etag}"',
            "Content-Length": str(stop - start),
            "Content-Range": f"bytes {start}-{stop - 1}/{listing.nbytes}" if is_part else None,
        }
        status = 206 if is_part else 200
        yield Body(listing.nbytes, listing.etag, pieces(), status, headers, abort_event.set)

    def _newest(self, key: str, start: int, stop: int | None) -> tuple[Listed, bytes]:
        """Return the newest version of an object, and the bytes of its first range.

        Raises:
            StoreError: the object was replaced during each of `ATTEMPTS` tries.
        """
        for _ in range(ATTEMPTS):
            newest = self.head(key)[0]
            range_end = min(newest.nbytes if stop is None else stop, start + RANGE, newest.nbytes)
            try:
                return newest, self._whole_range(
                    key, start, range_end, newest.etag
                ) if start < range_end else b""
            except Changed:
                continue
        raise StoreError(f"{key} in {self.name} changes all the time")

    def _whole_range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        content = self._range(key, start, stop, etag)
        if len(content) != stop - start:
            raise StoreError(
                f"The server of the bucket {self.name} sent {len(content)} of {stop - start} bytes"
            )
        return content

    def nbytes(self, key: str, etag: str) -> int:
        return self._same_version(key, etag)[0].nbytes

    def check(self, key: str, known: Listed) -> Begin | None:
        expected_hash = self._same_version(key, known.etag)[1]
        if expected_hash is None:
            return None
        digest, value = expected_hash
        return lambda: HashCheck(digest(), value.hex())

    def _same_version(self, key: str, etag: str) -> tuple[Listed, Hash | None]:
        listed_and_hash = self.head(key)
        if listed_and_hash[0].etag != etag:
            raise Changed
        return listed_and_hash

    @abstractmethod
    def head(self, key: str) -> tuple[Listed, Hash | None]:
        """Return the newest version of an object, and the server's hash of it (None: no hash)."""

    @abstractmethod
    def _range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        """Return bytes ``start:stop`` of an object, which must have this ETag."""
