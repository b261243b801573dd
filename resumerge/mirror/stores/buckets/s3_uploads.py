"""Uploads to S3: a small file in one request, a large one in parts.

A later attempt continues an interrupted upload, also on another machine. The server returns the MD5
of the bytes that it received, as the ETag, which is compared with the local MD5. On servers that
encrypt with keys of their own, ETags are not MD5s. Then the whole object is read back and compared,
and a later attempt sends all parts again.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Container, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from resumerge.buckets.errors import Changed, Unsupported
from resumerge.buckets.s3_errors import s3_errors
from resumerge.mirror.stores.base import Moved, StoreError

PART = 16 << 20
"""The bytes of a part, which is held in memory. The protocol requires at least 5 MiB."""

MOST_PARTS = 10_000
"""The most parts of an object that the protocol allows."""

REPORTED = 1 << 18
"""The number of sent bytes after which they are reported."""

_moved: ContextVar[Moved | None] = ContextVar("_moved", default=None)


class Upload:
    """The upload of one file to one object.

    Args:
        api: boto3's client, prepared by `report_sent_bytes`.
        bucket: the bucket's name, for requests and messages.
        key: the object's key, with the store's prefix.
        path: the local file.
        moved: called with the number of bytes that were moved; may raise to stop.
        conditions: extra arguments of the request that creates the object, with its conditions.
    """

    def __init__(
        self,
        api: Any,
        bucket: str,
        key: str,
        path: Path,
        moved: Moved,
        conditions: Mapping[str, str],
    ) -> None:
        self._api, self._bucket, self._key = api, bucket, key
        self._conditions = conditions
        self._place = {"Bucket": bucket, "Key": key}
        self._path, self._moved = path, moved
        self._nbytes = path.stat().st_size
        self._part = part_bytes(self._nbytes)
        self._sha256 = hashlib.sha256()
        self._md5s: list[bytes] = []

    def run(self) -> str:
        """Send the missing parts of the file, and return the SHA-256 of the local file.

        Nothing is sent if the object exists with the ETag of the file. If the server's ETags are
        not MD5s, the file is always sent again.

        Raises:
            StoreError: the server fails, or its copy differs.
            Changed: a condition is not met.
        """
        self._moved(0)
        present_etag = self._remote_etag()
        if present_etag:
            for _ in self._pieces():
                self._moved(0)
            if present_etag == self._expected_etag():
                return self._sha256.hexdigest()
        etag = self._send_whole() if self._nbytes <= self._part else self._send_parts()
        if etag != self._expected_etag():
            self._check_sent()
        return self._sha256.hexdigest()

    def _remote_etag(self) -> str:
        """Return the ETag of the object; empty if it does not exist or has another size."""
        try:
            with s3_errors(self._bucket, self._key):
                response = self._api.head_object(**self._place)
        except FileNotFoundError:
            return ""
        return (
            str(response.get("ETag", "")) if response.get("ContentLength") == self._nbytes else ""
        )

    def _pieces(self) -> Iterator[bytes]:
        """Yield the parts of the local file, and update the hashes of the file and its parts."""
        self._sha256, self._md5s = hashlib.sha256(), []
        with self._path.open("rb", buffering=0) as file:
            for start in range(0, max(1, self._nbytes), self._part):
                part = file.read(min(self._part, self._nbytes - start))
                self._sha256.update(part)
                self._md5s.append(hashlib.md5(part, usedforsecurity=False).digest())
                yield part

    def _expected_etag(self) -> str:
        if self._nbytes <= self._part:
            return f'"{self._md5s[0].hex()}"'
        md5_of_md5s = hashlib.md5(b"".join(self._md5s), usedforsecurity=False).hexdigest()
        return f'"{md5_of_md5s}-{len(self._md5s)}"'

    def _send_whole(self) -> str:
        (content,) = self._pieces()
        with s3_errors(self._bucket), _reported(self._moved):
            response = self._api.put_object(
                **self._place, **self._conditions, Body=content, ContentMD5=self._digest()
            )
        return str(response.get("ETag", ""))

    def _send_parts(self) -> str:
        upload_id, present_etags = self._started()
        sent_parts = []
        for number, part in enumerate(self._pieces(), 1):
            self._moved(0)
            etag = f'"{self._md5s[-1].hex()}"'
            if present_etags.get(number) != etag:
                with s3_errors(self._bucket), _reported(self._moved):
                    response = self._api.upload_part(
                        **self._place,
                        UploadId=upload_id,
                        PartNumber=number,
                        Body=part,
                        ContentMD5=self._digest(),
                    )
                etag = response.get("ETag", etag)
            sent_parts.append({"PartNumber": number, "ETag": etag})
        upload_entry = {"Key": self._key, "UploadId": upload_id}
        try:
            with s3_errors(self._bucket):
                response = self._api.complete_multipart_upload(
                    Bucket=self._bucket,
                    **upload_entry,
                    **self._conditions,
                    MultipartUpload={"Parts": sent_parts},
                )
        except Changed:
            _abort(self._api, self._bucket, upload_entry)
            raise
        return str(response.get("ETag", ""))

    def _digest(self) -> str:
        """Return the MD5 of the newest part in base64, as in the header Content-MD5."""
        return base64.b64encode(self._md5s[-1]).decode()

    def _started(self) -> tuple[str, dict[int, str]]:
        """Return the id of the upload to continue, and the ETags of its parts by number.

        This is the newest unfinished upload of this object, or else a new one. Older unfinished
        uploads of the object are aborted.
        """
        object_uploads = [
            upload
            for upload in unfinished_uploads(self._api, self._bucket, self._key)
            if upload["Key"] == self._key
        ]
        object_uploads.sort(key=lambda item: (item["Initiated"], item["UploadId"]))
        for upload in object_uploads[:-1]:
            _abort(self._api, self._bucket, upload)
        if object_uploads:
            try:
                return object_uploads[-1]["UploadId"], self._parts(object_uploads[-1]["UploadId"])
            except Unsupported:
                _abort(self._api, self._bucket, object_uploads[-1])
        with s3_errors(self._bucket):
            return self._api.create_multipart_upload(**self._place)["UploadId"], {}

    def _parts(self, upload_id: str) -> dict[int, str]:
        """Return the ETags of the parts that the server has of an upload, by number."""
        with s3_errors(self._bucket):
            paginator = self._api.get_paginator("list_parts")
            pages = paginator.paginate(**self._place, UploadId=upload_id)
            return {
                part["PartNumber"]: part.get("ETag", "")
                for page in pages
                for part in page.get("Parts", ())
            }

    def _check_sent(self) -> None:
        """Read the object back and compare it with the local file; delete it if it differs.

        Raises:
            StoreError: the object differs.
        """
        if self._remote_sha256() != self._sha256.hexdigest():
            with s3_errors(self._bucket):
                self._api.delete_object(**self._place)
            raise StoreError(f"{self._key} in {self._bucket} differs from what was sent")

    def _remote_sha256(self) -> str:
        """Read the object, and return its SHA-256 in hex digits."""
        digest = hashlib.sha256()
        with s3_errors(self._bucket, self._key):
            stream = self._api.get_object(**self._place)["Body"]
            with closing(stream):
                while piece := stream.read(REPORTED):
                    digest.update(piece)
                    self._moved(len(piece))
        return digest.hexdigest()


def part_bytes(nbytes: int) -> int:
    """Return the bytes per part for a file: the least multiple of `PART` within `MOST_PARTS`."""
    return PART * max(1, -(-nbytes // (PART * MOST_PARTS)))


def unfinished_uploads(api: Any, bucket: str, prefix: str) -> list[dict[str, Any]]:
    """Return boto3's entries of unfinished multipart uploads, of keys that begin with a prefix."""
    try:
        with s3_errors(bucket, prefix):
            paginator = api.get_paginator("list_multipart_uploads")
            pages = paginator.paginate(Bucket=bucket, Prefix=prefix)
            uploads = [upload for page in pages for upload in page.get("Uploads", ())]
    except (FileNotFoundError, Unsupported):  # some servers raise these instead of an empty list
        return []
    return uploads


def abort_uploads(api: Any, bucket: str, prefix: str, keys: Container[str]) -> None:
    """Abort every unfinished multipart upload of some keys.

    Args:
        api: boto3's client.
        bucket: the bucket's name, for requests and messages.
        prefix: a text with which all of these keys begin.
        keys: the keys whose uploads are aborted; uploads of other keys go on.
    """
    for upload in unfinished_uploads(api, bucket, prefix):
        if upload["Key"] in keys:
            _abort(api, bucket, upload)


def _abort(api: Any, bucket: str, item: dict[str, Any]) -> None:
    with suppress(FileNotFoundError), s3_errors(bucket, item["Key"]):
        api.abort_multipart_upload(Bucket=bucket, Key=item["Key"], UploadId=item["UploadId"])


# Reports of sent bytes


class _Stop(BaseException):
    """A request to stop the transfer. HTTP libraries retry after any `Exception`."""


class _ReportedBody(io.BytesIO):
    """The body of a request. It reports its bytes while they are sent."""

    def __init__(self, data: bytes, moved: Moved) -> None:
        super().__init__(data)
        self._moved, self._unreported = moved, 0

    def read(self, size: int | None = -1, /) -> bytes:
        sent_bytes = super().read(size)
        self._unreported += len(sent_bytes)
        if self._unreported >= REPORTED or not sent_bytes:
            nbytes, self._unreported = self._unreported, 0
            token = _moved.set(None)  # the callback may make requests, such as to renew a lease
            try:
                self._moved(nbytes)
            except Exception as error:
                raise _Stop from error
            finally:
                _moved.reset(token)
        return sent_bytes


@contextmanager
def _reported(moved: Moved) -> Iterator[None]:
    """Report the bytes of a request's body while they are sent, for a request in this context.

    Args:
        moved: called with the number of bytes that were sent; may raise to stop.

    Raises:
        Exception: the error that `moved` raised.
    """
    token = _moved.set(moved)
    try:
        yield
    except _Stop as stop:
        assert stop.__cause__ is not None
        raise stop.__cause__ from None
    finally:
        _moved.reset(token)


def report_sent_bytes(api: Any) -> None:
    """Make a client of boto3 report the bodies that it sends, see `_reported`.

    The bodies are replaced only after boto3 has read them to compute the signature.
    """

    def replace(request: Any, **_: Any) -> None:
        moved = _moved.get()
        if moved is not None and request.body:
            body = request.body
            body_bytes = body if isinstance(body, bytes) else body.read()
            if body is not body_bytes:
                body.seek(0)  # boto3 reads the body again if it repeats the request
            request.body = _ReportedBody(body_bytes, moved)

    for operation in ("PutObject", "UploadPart"):
        api.meta.events.register(f"before-send.s3.{operation}", replace)
