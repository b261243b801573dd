"""A file of a model in a bucket: the object, and its copy in the cache.

The cache is in ``HF_HOME/resumerge/buckets/SERVER/BUCKET/PREFIX``. ``blobs/`` contains the contents
and a record of each. ``snapshots/`` has one folder for each listing of the model, with links to the
contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import xxhash

from resumerge.buckets.address import split_address
from resumerge.buckets.base import Bucket, Listed
from resumerge.buckets.calls import bucket_call, explain_bucket_error, open_bucket
from resumerge.buckets.content_hash import BucketContent, read_record, record_as_json
from resumerge.buckets.errors import Changed
from resumerge.digests import ExpectedContent, hash_file
from resumerge.errors import InputError, Reason, Resumable, ResumergeError
from resumerge.remote.file import RemoteFile, Response, offline_error
from resumerge.storage import Storage

T = TypeVar("T")

DOWNLOAD_PIECE_BYTES = 1 << 16
"""The bytes of a download that are read at once. A kill loses at most this many bytes."""

_LONGEST_NAME = 200
"""The most characters of a prefix in a folder's name."""


@dataclass(frozen=True)
class BucketFile(RemoteFile):
    """One file of a model in a bucket.

    `model` is the model's address, and `name` the rest of the file's address. `revision` is the
    digest of the listing. `etag` has no quotes.

    Args:
        folder: the model's folder in the cache.
    """

    folder: Path

    @property
    def version(self) -> str:
        return self.model

    @property
    def where(self) -> str:
        return f"{self.model.removesuffix('/')}/{self.name}"

    def never_intact(self, attempts: int) -> Resumable:
        return Resumable(
            Reason.SOURCE_UNAVAILABLE,
            f"{self.where} was downloaded {attempts} times, and its content never had the hash "
            f"that the server says (ETag {self.etag}).\n"
            "The object is damaged, or something between the server and this machine damages it: "
            "upload it again, or try another network, then resume.",
        )

    def offline_error(self, names: list[str]) -> InputError:
        return bucket_offline_error(self.model, self.pointer.parent, names)

    @property
    def cache(self) -> Path:
        return cache_folder()

    @property
    def pointer(self) -> Path:
        return self.folder / "snapshots" / self.revision / self.name

    @property
    def blob(self) -> Path:
        return self.folder / "blobs" / self._key

    @property
    def links(self) -> set[Path]:
        """The paths in all snapshots that link to the content, and `pointer`.

        Several listings can contain the same version of this object.
        """
        pointers = {path / self.name for path in (self.folder / "snapshots").glob("*")}
        return {path for path in pointers if self.is_linked(path)} | {self.pointer}

    def is_linked(self, path: Path) -> bool:
        """Return whether a path in the cache, with this file's name, has this content."""
        if path.is_symlink():
            return path.readlink().name == self.blob.name
        return path.is_file()

    @property
    def lock(self) -> Path:
        return self.folder / "locks" / f"{self._key}.lock"

    @property
    def identity(self) -> str:
        return f"{self.model} {self._key}"

    @property
    def recorded(self) -> Path:
        """The path of the record of the downloaded content."""
        return self.blob.with_name(f"{self._key}.json")

    def is_intact(self, path: Path, check: Callable[[], None] | None = None) -> bool:
        record = read_record(self.recorded)
        if record is None or record[:3] != (self.name, self.etag, self.size):
            return False
        if path.stat().st_size != self.size:
            return False
        digest = xxhash.xxh3_128()
        return hash_file(path, digest, check) == self.size and digest.hexdigest() == record[3]

    def put(self, complete: Path, content: ExpectedContent) -> None:
        assert isinstance(content, BucketContent)
        new_record = self.recorded.with_name(f"{self._key}.json.new")  # the lock is held
        new_record.write_bytes(record_as_json(self.name, self.etag, self.size, content.xxh3))
        Storage().sync_file(new_record)
        new_record.replace(self.recorded)
        super().put(complete, content)

    @property
    def is_offline(self) -> bool:
        return False

    def explain(self, error: Exception) -> ResumergeError | None:
        return explain_bucket_error(error, self.model, self.where)

    @contextmanager
    def request(
        self, start: int, stop: int | None = None, validator: str | None = None
    ) -> Iterator[Response]:
        bucket, key = self._object
        with bucket.read(key, start, stop, known=self._listed, piece=DOWNLOAD_PIECE_BYTES) as body:
            if body.version.strip('"') != self.etag:  # a server that ignores the condition
                raise Changed
            yield Response(body.status, body.headers, body.pieces, body.abort)

    def expected_content(self) -> Callable[[], BucketContent]:
        bucket, key = self._object
        return partial(BucketContent, bucket.check(key, self._listed))

    def refreshed(self) -> BucketFile:
        bucket, key = self._object
        return replace(self, size=self.call(lambda: bucket.nbytes(key, self.etag)))

    @property
    def _listed(self) -> Listed:
        return Listed(self.size, self.etag)

    @property
    def _key(self) -> str:
        """The name of the content in the cache: a hash of the object's name, ETag and size.

        The ETag alone would not be enough. On some servers, ETags are not hashes, and different
        objects can have the same ETag.
        """
        text = f"{self.name}\0{self.etag}\0{self.size}"
        return xxhash.xxh3_128_hexdigest(text.encode())

    @property
    def _object(self) -> tuple[Bucket, str]:
        prefix = split_address(self.model)[1]
        return open_bucket(self.model), f"{prefix}/{self.name}" if prefix else self.name


def cache_folder() -> Path:
    """Return the folder of the cache for all buckets."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "resumerge" / "buckets"


def model_folder(model: str) -> Path:
    """Return the folder of a model in the cache.

    Args:
        model: the model's address, which names the bucket and the prefix.

    Raises:
        InputError: the configuration of the cloud's library is invalid, so that the server is
            unknown.
    """
    bucket, prefix = split_address(model)
    name = quote(prefix, safe="") or "%"  # no quoted text is a lone "%"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}%{xxhash.xxh3_64_hexdigest(prefix.encode())}"
    server = bucket_call(lambda: open_bucket(model).server, model)
    return cache_folder() / server / bucket / name


def bucket_offline_error(model: str, folder: Path, names: list[str]) -> InputError:
    """Return the error for files that are not in the cache while the network is off.

    Args:
        model: the model's address, for the message.
        folder: the folder that should contain the files.
        names: the names of the missing files.
    """
    return offline_error(model, folder, names, "run once without --offline")
