"""One bucket of S3, or of any server with the S3 protocol: the requests that read.

Requests are made with boto3, AWS's own library. It finds credentials in the same places as AWS's
tools.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from resumerge.buckets.base import (
    BODY_PIECE_BYTES,
    CONNECT_TIMEOUT,
    IDLE_TIMEOUT,
    Body,
    Bucket,
    Listed,
    server_name,
    stated,
)
from resumerge.buckets.content_hash import Begin, check_of
from resumerge.buckets.errors import (
    REDIRECTS,
    Refused,
    Unsupported,
    is_page,
    misplaced,
    not_understood,
    note_answer,
)
from resumerge.buckets.s3_errors import ADVICE, s3_errors

DEFAULT_REGION = "us-east-1"
"""The region if none is configured. Servers other than AWS accept any region."""

AWS = "amazonaws.com"


class S3Bucket(Bucket):
    """A bucket of S3. boto3 makes a failing request up to three times, within seconds.

    boto3 reads AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_PROFILE … and AWS's files.

    Attributes:
        at: the time in the server's latest response, in UTC; None before a response.
    """

    kind = "buckets of S3"
    library = "boto3"
    extra = "cloud"
    variables = ("AWS_",)

    at: datetime | None = None

    @property
    def server(self) -> str:
        """The name of AWS, or the endpoint's host, port and path, as one usable part of a path."""
        address = urlsplit(self.api().meta.endpoint_url)
        host = address.hostname or ""
        if host == AWS or host.endswith(f".{AWS}"):
            return AWS
        name = server_name(self.api().meta.endpoint_url)
        return "_".join([name, *filter(None, address.path.split("/"))])

    def list(self, prefix: str) -> dict[str, Listed]:
        """Return every object whose key begins with a prefix, by the key without that prefix."""
        objects = {}
        with s3_errors(self.name):
            pages = self.api().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix):
                for entry in page.get("Contents", ()):
                    name = entry["Key"].removeprefix(prefix)
                    if not entry["Key"].endswith("/"):  # the AWS console's marker of a folder
                        objects[name] = stated(self.name, entry.get("Size"), entry.get("ETag"))
        return objects

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
        conditions = {"IfMatch": f'"{known.etag}"'} if known else {}
        if start or stop is not None:
            conditions["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        with s3_errors(self.name, key):
            response = self.api().get_object(Bucket=self.name, Key=key, **conditions)
        stream = response["Body"]
        etag = f'"{stated(self.name, response.get("ContentLength"), response.get("ETag")).etag}"'

        def pieces() -> Iterator[bytes]:
            with s3_errors(self.name, key):
                yield from iter(lambda: stream.read(piece), b"")

        size_text = str(response.get("ContentRange", "")).rpartition("/")[2]
        nbytes = int(size_text) if size_text.isdecimal() else response["ContentLength"]
        headers = {
            "ETag": etag,
            "Content-Range": response.get("ContentRange"),
            "Content-Length": str(response["ContentLength"]),
        }
        status = response["ResponseMetadata"]["HTTPStatusCode"]

        def abort() -> None:
            with suppress(Exception):  # the library has no public access to the socket
                stream._raw_stream._fp.fp.raw._sock.shutdown(socket.SHUT_RDWR)

        try:
            yield Body(nbytes, etag, pieces(), status, headers, abort)
        finally:
            stream.close()

    def nbytes(self, key: str, etag: str) -> int:
        head = self._head(key, etag)
        return stated(self.name, head.get("ContentLength"), head.get("ETag")).nbytes

    def check(self, key: str, known: Listed) -> Begin | None:
        head = self._head(key, known.etag)
        stated(self.name, head.get("ContentLength"), head.get("ETag"))
        part_bytes = functools.partial(self._part_bytes, key)
        return check_of(self.name, head, known.etag, known.nbytes, part_bytes)

    def _head(self, key: str, etag: str) -> Mapping[str, Any]:
        """Request the headers of an object, which must have this ETag, with the server's hashes."""
        with s3_errors(self.name, key):
            head: Mapping[str, Any] = self.api().head_object(
                Bucket=self.name, Key=key, IfMatch=f'"{etag}"', ChecksumMode="ENABLED"
            )
            return head

    def _part_bytes(self, key: str, number: int) -> int:
        """Return the size in bytes of a part, numbered from 1; 0 if unknown."""
        # IfMatch is not used, because some servers compare it with the part's own ETag.
        try:
            with s3_errors(self.name, key):
                head = self.api().head_object(Bucket=self.name, Key=key, PartNumber=number)
        except (Unsupported, Refused):
            return 0
        return int(head.get("ContentLength", 0)) if "PartsCount" in head else 0

    def _open(self) -> Any:
        import boto3
        import botocore.session
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=IDLE_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": 3},
            max_pool_connections=16,
            # Servers other than AWS refuse the checksums that boto3 adds by default. Every write
            # has a Content-MD5 instead, which all servers verify.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with s3_errors(self.name):
            core_session = botocore.session.Session()
            core_session.register_component("data_loader", _loader())
            session = boto3.session.Session(botocore_session=core_session)
            region = os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
            try:
                api = session.client("s3", region_name=region, config=config)
                server_name(api.meta.endpoint_url)  # raises for an endpoint that cannot work
            except ValueError:
                fault = (
                    "its endpoint is not https://HOST or http://HOST:PORT, or its region is none"
                )
                raise misplaced(ADVICE, self.name, fault) from None
        api.meta.events.register("before-parse.s3", self._check_answer)
        api.meta.events.register("after-call.s3", self._note_time)
        return api

    def _check_answer(self, operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
        """Refuse a response that is not S3's. boto3 would misread it, or repeat the request."""
        status, headers = response_dict["status_code"], response_dict["headers"]
        note_answer(status, headers)
        body = response_dict["body"] if isinstance(response_dict["body"], bytes) else b""
        is_of_aws = "x-amz-bucket-region" in headers or b"<Code>" in body
        if status in REDIRECTS and not is_of_aws:
            raise not_understood(self.name)
        is_listing = operation_model.name.startswith("List")
        if is_listing and is_page(headers):  # boto3 treats a body without XML as HTTP 500
            raise not_understood(self.name, "a web page")
        if is_listing and status < 300 and f"<{operation_model.name[:4]}".encode() not in body:
            raise not_understood(self.name, "no listing")

    def _note_time(self, parsed: dict[str, Any], **_: Any) -> None:
        date = parsed["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is not None:
            self.at = parsedate_to_datetime(date).astimezone(UTC)


@functools.cache
def _loader() -> Any:
    """Return the loader of S3's protocol description, cached because reading it takes 0.1 s."""
    from botocore.loaders import create_loader

    return create_loader()
