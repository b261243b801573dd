"""A store in a bucket of Google Cloud Storage.

An interrupted upload starts again. The server keeps its bytes in a session, which expires and costs
nothing.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumerge.buckets.address import EXAMPLES
from resumerge.buckets.google import GoogleBucket, google_errors, patience
from resumerge.mirror.stores.base import METADATA, Moved, StoreError
from resumerge.mirror.stores.buckets.client import BucketClient, sha256_if_stored
from resumerge.mirror.stores.buckets.store import BucketStore

CHUNK = 8 << 20
"""The bytes of an upload per request, which are held in memory."""

UPLOAD_PIECE_BYTES = 1 << 18
"""The bytes that are read from the local file between two reports."""


class GoogleClient(BucketClient):
    """The requests to a bucket of Google Cloud Storage, for the names below one prefix."""

    objects = GoogleBucket
    _objects: GoogleBucket

    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        self._put(name, data, 0 if absent else int(version) if version else None)

    def _put(self, name: str, data: bytes, generation: int | None) -> Any:
        blob = self._blob(name)
        with google_errors(self.bucket):
            blob.upload_from_string(
                data, checksum="md5", if_generation_match=generation, **patience()
            )
        return blob

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), google_errors(self.bucket, name):
            self._blob(name).delete(**patience())

    def copy(self, name: str, other: str) -> None:
        source, target, token = self._blob(name), self._blob(other), None
        while True:
            with google_errors(self.bucket, name):
                token, _, _ = target.rewrite(source, token=token, **patience())
            if token is None:
                return

    def upload(self, name: str, path: Path, moved: Moved, *, absent: bool = False) -> str:
        moved(0)
        if sha256 := sha256_if_stored(self._objects, self._prefix + name, path, moved):
            return sha256
        blob, nbytes = self._blob(name), path.stat().st_size
        blob.chunk_size = CHUNK
        with path.open("rb", buffering=0) as file, google_errors(self.bucket):
            reader = _Reader(file, moved)
            try:
                blob.upload_from_file(
                    reader,
                    size=nbytes,
                    checksum="md5",
                    if_generation_match=0 if absent else None,
                    **patience(),
                )
            except ValueError:  # the library can only continue after a whole chunk
                raise StoreError(
                    f"The server of the bucket {self.bucket} kept a part of what was sent to it"
                ) from None
        if blob.size != nbytes or reader.nbytes != nbytes:
            raise StoreError(f"{name} in {self.bucket} differs from what was sent")
        return reader.sha256.hexdigest()

    def abandon_uploads(self, names: Iterable[str]) -> None:
        """Do nothing: the server's sessions expire."""

    def now(self) -> datetime | None:
        """Return the server's time of writing a small object, which is then removed."""
        name = f"{METADATA}/probe-{secrets.token_hex(4)}-0"
        written_at: datetime | None = self._put(name, b"now", None).updated
        self.remove(name)
        return None if written_at is None else written_at.astimezone(UTC)

    def _blob(self, name: str) -> Any:
        return self._objects.api().blob(self._prefix + name)


class _Reader(io.RawIOBase):
    """A file that is hashed and reported while it is read. It is read once, from start to end."""

    def __init__(self, file: io.FileIO, moved: Moved) -> None:
        self._file, self._moved = file, moved
        self.sha256, self.nbytes = hashlib.sha256(), 0

    def read(self, size: int | None = -1, /) -> bytes:
        wanted_bytes = CHUNK if size is None or size < 0 else size
        piece = bytearray()
        while len(piece) < wanted_bytes:
            read_bytes = self._file.read(min(UPLOAD_PIECE_BYTES, wanted_bytes - len(piece)))
            if not read_bytes:
                break
            self._moved(len(read_bytes))
            piece += read_bytes
        self.sha256.update(piece)
        self.nbytes += len(piece)
        return bytes(piece)

    def tell(self) -> int:
        return self.nbytes


class GoogleStore(BucketStore):
    """Objects in a bucket of Google Cloud Storage. `GoogleBucket` describes the credentials."""

    scheme = "gs"
    example = EXAMPLES["gs"]
    client = GoogleClient
