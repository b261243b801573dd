"""A bucket as another S3 client sees it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

_numbers = itertools.count()


class Bucket:
    """A new bucket of a server.

    Args:
        env: the variables that direct a client to the server.

    Attributes:
        url: its address.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        import boto3

        self.name = f"bucket-{next(_numbers)}"
        self.url = f"s3://{self.name}"
        self.api: Any = boto3.client(
            "s3",
            endpoint_url=env["AWS_ENDPOINT_URL"],
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
            region_name=env["AWS_REGION"],
        )
        self.api.create_bucket(Bucket=self.name)

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        """Return the bytes of every object, by its name below the prefix."""
        pages = self.api.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return {
            key.removeprefix(prefix): self.api.get_object(Bucket=self.name, Key=key)["Body"].read()
            for key in keys
        }

    def put(self, key: str, data: bytes) -> None:
        self.api.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self.api.delete_object(Bucket=self.name, Key=key)

    def unfinished_uploads(self) -> list[str]:
        """Return the keys of multipart uploads that are begun, but not completed or aborted."""
        answer = self.api.list_multipart_uploads(Bucket=self.name)
        return sorted(item["Key"] for item in answer.get("Uploads", ()))
