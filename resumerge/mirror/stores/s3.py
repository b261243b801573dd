"""A store in a bucket of S3, or of any server that speaks its protocol.

Requests are made with boto3, AWS's own library: it takes credentials from where AWS's tools take
them, and it can list, continue and abort multipart uploads, which a killed process leaves behind.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

from resumerge.errors import refuse
from resumerge.mirror.stores.base import Moved
from resumerge.mirror.stores.bucket import BucketStore
from resumerge.mirror.stores.bucket_client import Body, BucketClient, split_address
from resumerge.mirror.stores.s3_errors import s3_errors
from resumerge.mirror.stores.s3_uploads import Upload, abort_uploads, report_sent_bytes

PIECE = 1 << 20
"""Bytes that are read at once."""

IDLE_TIMEOUT = 60.0
"""A connection that transfers nothing for so many seconds is closed."""

DEFAULT_REGION = "us-east-1"
"""Where no region is configured: servers that are not AWS's accept any."""


class S3Store(BucketStore):
    """Objects in a bucket of S3, Cloudflare R2, MinIO, Ceph, SeaweedFS …

    Endpoint, region and credentials come from the environment and from AWS's files, as boto3 reads
    them (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_PROFILE …).
    """

    scheme = "s3"
    example = "s3://bucket/prefix"

    @classmethod
    def open(cls, address: str, *, offline: bool = False) -> Self:
        bucket, prefix = split_address(address, cls.scheme, cls.example)
        url = f"{cls.scheme}://{bucket}" + (f"/{prefix}" if prefix else "")
        if offline:
            raise refuse(
                "Offline mode is on, and this is a bucket",
                where=url,
                fix="run without --offline",
            )
        if importlib.util.find_spec("boto3") is None:
            raise refuse(
                "boto3 is not installed, which mirrors in buckets of S3 need",
                where=url,
                fix="pip install 'resumerge[cloud]'",
            )
        return cls(url, S3Client(bucket, prefix))


class S3Client(BucketClient):
    """See `BucketClient`. boto3 repeats a request that fails twice, within seconds."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._opening = threading.Lock()
        self._opened: tuple[int, Any] | None = None
        """The process, and its client: connections do not survive a fork."""
        self._at: datetime | None = None

    def list(self) -> dict[str, int]:
        found = {}
        with s3_errors(self.bucket):
            pages = self._api().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._prefix):
                for item in page.get("Contents", ()):
                    name = item["Key"].removeprefix(self._prefix)
                    if name and not name.endswith("/"):  # a console's mark of a folder
                        found[name] = item["Size"]
        return found

    @contextmanager
    def read(self, name: str, start: int = 0) -> Iterator[Body]:
        more = {"Range": f"bytes={start}-"} if start else {}
        with s3_errors(self.bucket, name):
            answer = self._api().get_object(**self._place(name), **more)
        stream = answer["Body"]

        def pieces() -> Iterator[bytes]:
            with s3_errors(self.bucket, name):
                yield from iter(lambda: stream.read(PIECE), b"")

        try:
            yield Body(answer["ContentLength"] + start, answer["ETag"], pieces())
        finally:
            stream.close()

    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        conditions = {"IfNoneMatch": "*"} if absent else {"IfMatch": version} if version else {}
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        with s3_errors(self.bucket):
            self._api().put_object(**self._place(name), Body=data, ContentMD5=digest, **conditions)

    def remove(self, name: str) -> None:
        try:
            with s3_errors(self.bucket, name):
                self._api().delete_object(**self._place(name))
        except FileNotFoundError:  # some servers say so
            return

    def copy(self, name: str, other: str) -> None:
        with s3_errors(self.bucket, name):
            self._api().copy_object(**self._place(other), CopySource=self._place(name))

    def upload(self, name: str, path: Path, moved: Moved) -> str:
        return Upload(self._api(), self.bucket, self._prefix + name, path, moved).run()

    def abandon_uploads(self, names: Iterable[str]) -> None:
        keys = {self._prefix + name for name in names}
        abort_uploads(self._api(), self.bucket, self._prefix, keys)

    def now(self) -> datetime | None:
        with s3_errors(self.bucket):
            self._api().list_objects_v2(Bucket=self.bucket, Prefix=self._prefix, MaxKeys=1)
        return self._at

    # boto3

    def _place(self, name: str) -> dict[str, str]:
        """The arguments of boto3 that say which object is meant."""
        return {"Bucket": self.bucket, "Key": self._prefix + name}

    def _api(self) -> Any:
        """boto3's client; this process's own."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    def _open(self) -> Any:
        import boto3
        import botocore.session
        from botocore.config import Config

        config = Config(
            connect_timeout=10,
            read_timeout=IDLE_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": 3},
            # Servers that are not AWS's refuse the checksums that boto3 adds by itself. Every write
            # has a Content-MD5, which all of them compare.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with s3_errors(self.bucket):
            described = botocore.session.Session()
            described.register_component("data_loader", _loader())
            session = boto3.session.Session(botocore_session=described)
            region = os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
            api = session.client("s3", region_name=region, config=config)
        api.meta.events.register("after-call.s3", self._note_time)
        report_sent_bytes(api)
        return api

    def _note_time(self, parsed: dict[str, Any], **_: Any) -> None:
        date = parsed["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is not None:
            self._at = parsedate_to_datetime(date).astimezone(UTC)


@functools.cache
def _loader() -> Any:
    """Holds the description of S3's protocol, which takes a tenth of a second to read."""
    from botocore.loaders import create_loader

    return create_loader()
