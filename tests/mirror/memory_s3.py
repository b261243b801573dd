"""S3 in memory, with boto3's calls: what `S3Store` needs, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError
from virtual_machines import World

from resumerge.buckets.s3 import S3Bucket
from resumerge.mirror.stores.buckets import s3_uploads


@dataclass
class Server:
    """One bucket.

    Args:
        conditional: whether it observes If-None-Match and If-Match.
        matches: whether it observes If-Match.
        refuses_conditions: whether it refuses requests with either.
        encrypts: whether its ETags are no MD5s, since it encrypts with keys of its own.
        lists_parts: whether it says which parts of an upload it has.
        no_uploads: how it refuses to list the uploads that were begun where there are none.
    """

    conditional: bool = True
    matches: bool = True
    refuses_conditions: bool = False
    encrypts: bool = False
    lists_parts: bool = True
    no_uploads: tuple[int, str] | None = None
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """Bytes and ETag, by key."""
    uploads: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)
    """Key and parts of multipart uploads that were begun, by id."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def write(self, key: str, data: bytes, etag: str = "") -> str:
        etag = etag or f'"{hashlib.md5(data).hexdigest()}"'
        if self.encrypts:
            etag = f'"{next(self.numbers):032}"'
        self.objects[key] = data, etag
        return etag

    def etag_of_part(self, data: bytes) -> str:
        return f'"{hashlib.md5(data).hexdigest()}{"-encrypted" * self.encrypts}"'


def refused(status: int, code: str) -> ClientError:
    """Return the error that boto3 raises for a refused request."""
    facts = {"HTTPStatusCode": status, "HTTPHeaders": {}}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": facts}, "request")


def failure(how: str) -> Exception:
    """Return the error of a request that `failed`, or was not answered."""
    if how == "failed":
        return refused(503, "SlowDown")
    return ConnectionClosedError(endpoint_url="memory")


def _check_digest(data: bytes, given: dict[str, Any]) -> None:
    """Refuse a body whose MD5 is not stated, or is another."""
    if given.get("ContentMD5") != base64.b64encode(hashlib.md5(data).digest()).decode():
        raise refused(400, "BadDigest")


def _report(data: bytes) -> None:
    """Report the bytes of a body, as boto3 does while it sends them."""
    moved = s3_uploads._moved.get()
    if moved is not None:
        body = s3_uploads._ReportedBody(data, moved)
        while body.read(s3_uploads.REPORTED):
            pass


class Api:
    """The client of boto3 that a process has. Each call is a request of the world."""

    def __init__(self, server: Server, world: World) -> None:
        self._server, self._world = server, world

    def _ask(self, what: str, do: Callable[[], Any], *changes: str) -> Any:
        key = changes[0] if changes else ""
        return self._world.request(f"{what} {key}", do, fails=failure, changes=changes)

    # Objects

    def put_object(self, Key: str, Body: bytes, **given: Any) -> dict[str, Any]:
        _report(Body)

        def do() -> dict[str, Any]:
            there = self._server.objects.get(Key)
            _check_digest(Body, given)
            if self._server.refuses_conditions and given.keys() & {"IfMatch", "IfNoneMatch"}:
                raise refused(501, "NotImplemented")
            if self._server.conditional:
                known = given.get("IfMatch") if self._server.matches else None
                if "IfNoneMatch" in given and there is not None:
                    raise refused(412, "PreconditionFailed")
                if known and (there is None or there[1].strip('"') != known.strip('"')):
                    raise refused(412, "PreconditionFailed")
            return {"ETag": self._server.write(Key, Body)}

        return self._ask("put", do, Key)

    def get_object(self, Key: str, **given: Any) -> dict[str, Any]:
        def do() -> dict[str, Any]:
            data, etag = self._there(Key)
            start = int(given.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            rest = data[start:]
            return {
                "Body": io.BytesIO(rest),
                "ContentLength": len(rest),
                "ContentRange": f"bytes {start}-{len(data) - 1}/{len(data)}",
                "ETag": etag,
                "ResponseMetadata": {"HTTPStatusCode": 206 if start else 200},
            }

        return self._ask(f"get {Key}", do)

    def head_object(self, Key: str, **given: Any) -> dict[str, Any]:
        def do() -> dict[str, Any]:
            data, etag = self._there(Key)
            return {"ContentLength": len(data), "ETag": etag}

        return self._ask(f"head {Key}", do)

    def delete_object(self, Key: str, **given: Any) -> None:
        self._ask("delete", lambda: self._server.objects.pop(Key, None), Key)

    def copy_object(self, Key: str, CopySource: dict[str, str], **given: Any) -> None:
        def do() -> None:
            self._server.objects[Key] = self._there(CopySource["Key"])

        self._ask("copy", do, Key)

    def list_objects_v2(self, Prefix: str = "", **given: Any) -> dict[str, Any]:
        def do() -> dict[str, Any]:
            found = sorted(self._server.objects.items())
            contents = [
                {"Key": key, "Size": len(data), "ETag": etag}
                for key, (data, etag) in found
                if key.startswith(Prefix)
            ]
            return {"Contents": contents}

        return self._ask("list", do)

    def _there(self, key: str) -> tuple[bytes, str]:
        if key not in self._server.objects:
            raise refused(404, "NoSuchKey")
        return self._server.objects[key]

    # Uploads in parts

    def create_multipart_upload(self, Key: str, **given: Any) -> dict[str, str]:
        def do() -> dict[str, str]:
            upload = f"upload-{next(self._server.numbers):06}"
            self._server.uploads[upload] = Key, {}
            return {"UploadId": upload}

        return self._ask("create upload", do, Key)

    def upload_part(self, Key: str, UploadId: str, PartNumber: int, Body: Any, **given: Any) -> Any:
        data = bytes(Body)
        _report(data)

        def do() -> dict[str, str]:
            _check_digest(data, given)
            self._upload(UploadId)[PartNumber] = data
            return {"ETag": self._server.etag_of_part(data)}

        return self._ask(f"part {PartNumber}", do, Key)

    def complete_multipart_upload(
        self, Key: str, UploadId: str, MultipartUpload: dict[str, Any], **given: Any
    ) -> dict[str, str]:
        def do() -> dict[str, str]:
            there = self._upload(UploadId)
            if "IfNoneMatch" in given and self._server.conditional and Key in self._server.objects:
                raise refused(412, "PreconditionFailed")
            parts = []
            for part in MultipartUpload["Parts"]:
                data = there.get(part["PartNumber"], b"")
                if self._server.etag_of_part(data) != part["ETag"]:
                    raise refused(400, "InvalidPart")
                parts.append(data)
            del self._server.uploads[UploadId]
            digests = b"".join(hashlib.md5(part).digest() for part in parts)
            etag = f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'
            return {"ETag": self._server.write(Key, b"".join(parts), etag)}

        return self._ask("complete", do, Key)

    def abort_multipart_upload(self, Key: str, UploadId: str, **given: Any) -> None:
        def do() -> None:
            self._upload(UploadId)
            del self._server.uploads[UploadId]

        self._ask("abort", do, Key)

    def list_multipart_uploads(self, Prefix: str = "", **given: Any) -> dict[str, Any]:
        def do() -> dict[str, Any]:
            if self._server.no_uploads and not self._server.uploads:
                raise refused(*self._server.no_uploads)
            found = [
                {"Key": key, "UploadId": upload, "Initiated": upload}
                for upload, (key, _) in self._server.uploads.items()
                if key.startswith(Prefix)
            ]
            return {"Uploads": found}

        return self._ask("list uploads", do)

    def list_parts(self, UploadId: str, **given: Any) -> dict[str, Any]:
        def do() -> dict[str, Any]:
            if not self._server.lists_parts:
                raise refused(501, "NotImplemented")
            found = [
                {"PartNumber": number, "ETag": self._server.etag_of_part(data)}
                for number, data in sorted(self._upload(UploadId).items())
            ]
            return {"Parts": found}

        return self._ask("list parts", do)

    def get_paginator(self, operation: str) -> Any:
        call = getattr(self, operation)

        class Pages:
            def paginate(self, **given: Any) -> Iterator[dict[str, Any]]:
                yield call(**given)

        return Pages()

    def _upload(self, upload: str) -> dict[int, bytes]:
        if upload not in self._server.uploads:
            raise refused(404, "NoSuchUpload")
        return self._server.uploads[upload][1]


class MemoryBucket(S3Bucket):
    """A bucket of a server in memory."""

    def __init__(self, server: Server, world: World) -> None:
        super().__init__("bucket")
        self._api, self._world = Api(server, world), world

    def api(self) -> Api:
        self.at = self._world.wall()
        return self._api
