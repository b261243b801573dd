"""A store in a bucket of S3, or of any server with the S3 protocol.

A killed process leaves unfinished multipart uploads behind. boto3 can list, continue and abort
them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from resumerge.buckets.address import EXAMPLES
from resumerge.buckets.s3 import S3Bucket
from resumerge.buckets.s3_errors import s3_errors
from resumerge.mirror.stores.base import Moved
from resumerge.mirror.stores.buckets.client import BucketClient
from resumerge.mirror.stores.buckets.s3_uploads import Upload, abort_uploads, report_sent_bytes
from resumerge.mirror.stores.buckets.store import BucketStore


class _WritableBucket(S3Bucket):
    """A bucket whose client reports the bytes that it uploads."""

    def _open(self) -> Any:
        api = super()._open()
        report_sent_bytes(api)
        return api


class S3Client(BucketClient):
    """The requests to a bucket of S3, for the names below one prefix."""

    objects = _WritableBucket
    _objects: S3Bucket

    def put(self, name: str, data: bytes, *, absent: bool = False, version: str = "") -> None:
        conditions = {"IfNoneMatch": "*"} if absent else {"IfMatch": version} if version else {}
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        with s3_errors(self.bucket):
            self._objects.api().put_object(
                **self._place(name), Body=data, ContentMD5=digest, **conditions
            )

    def remove(self, name: str) -> None:
        try:
            with s3_errors(self.bucket, name):
                self._objects.api().delete_object(**self._place(name))
        except FileNotFoundError:  # some servers report a missing object
            return

    def copy(self, name: str, other: str) -> None:
        with s3_errors(self.bucket, name):
            self._objects.api().copy_object(**self._place(other), CopySource=self._place(name))

    def upload(self, name: str, path: Path, moved: Moved, *, absent: bool = False) -> str:
        key, conditions = self._prefix + name, {"IfNoneMatch": "*"} if absent else {}
        return Upload(self._objects.api(), self.bucket, key, path, moved, conditions).run()

    def abandon_uploads(self, names: Iterable[str]) -> None:
        keys = {self._prefix + name for name in names}
        abort_uploads(self._objects.api(), self.bucket, self._prefix, keys)

    def now(self) -> datetime | None:
        with s3_errors(self.bucket):
            self._objects.api().list_objects_v2(Bucket=self.bucket, Prefix=self._prefix, MaxKeys=1)
        return self._objects.at

    def _place(self, name: str) -> dict[str, str]:
        """Return the arguments of boto3 that name an object."""
        return {"Bucket": self.bucket, "Key": self._prefix + name}


class S3Store(BucketStore):
    """Objects in a bucket of S3, or of Cloudflare R2, MinIO, Ceph, SeaweedFS and others.

    `S3Bucket` describes where endpoint, region and credentials come from.
    """

    scheme = "s3"
    example = EXAMPLES["s3"]
    client = S3Client
