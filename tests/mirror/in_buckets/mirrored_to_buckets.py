"""Merges whose mirrors are places in a bucket."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from loopback_clouds import Cloud, Container
from loopback_s3 import Bucket, Server
from mirror_audit import AuditResult, check_mirror
from mirrored import Bench, Driver, Ended, Merge

from resumerge.mirror.stores.registry import open_store

_numbers = itertools.count()

LIBRARIES = {
    "s3": ("boto3.session", "botocore.httpsession", "requests"),
    "gs": ("botocore.httpsession", "google.cloud.storage"),
    "az": ("botocore.httpsession", "requests", "azure.storage.blob"),
}
"""The modules that a merge and `FarBucket` use, by cloud: imported before processes are forked."""


@dataclass
class BucketMerge(Merge):
    """A merge whose mirror is a place in a bucket."""

    bucket: Bucket | Container = field(kw_only=True)
    env: dict[str, str] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prefix = f"merge-{next(_numbers)}/"
        self.url = f"{self.bucket.url}/{self.prefix.removesuffix('/')}"
        self.options["mirror"] = self.url

    def _work(self, command: str, lacks: Any, far: dict[str, Any]) -> Ended:
        return self.driver.work(
            command=command,
            imports=LIBRARIES[self.url.partition(":")[0]],
            env=self.env,
            far=far,
            log=self.folder / "log.json",
            stderr=self.folder / "stderr",
            models=self.models,
            config=self.config,
            out=self.out,
            state=self.state,
            options=self.options,
        )

    def checked(self) -> AuditResult:
        return check_mirror(open_store(self.url))

    def mirrored(self) -> dict[str, bytes]:
        found = self.bucket.contents(self.prefix)
        found.pop(".resumerge/done.json", None)
        return found

    def assert_done(self, reference: dict[str, bytes]) -> None:
        super().assert_done(reference)
        assert self.bucket.unfinished_uploads() == []


class Merges:
    """A factory of merges that are mirrored to one bucket."""

    def __init__(
        self, bench: Bench, bucket: Bucket | Container, server: Server | Cloud, folder: Path
    ) -> None:
        self.bench, self.bucket, self.server, self.folder = bench, bucket, server, folder

    def new(self, endpoint: str = "", **options: Any) -> BucketMerge:
        driver: Driver = self.bench._drivers[0]
        number = next(_numbers)
        env = {**self.server.env(endpoint), "RESUMERGE_LEASE_SECONDS": "600"}  # no beat in between
        return BucketMerge(
            self.folder / f"{number}",
            driver,
            self.bench.models,
            options=options,
            bucket=self.bucket,
            env=env,
        )


@pytest.fixture
def merges(bench: Bench, bucket: Bucket, s3: Server, tmp_path: Path) -> Merges:
    """Return a factory of merges that are mirrored to a bucket of S3."""
    return Merges(bench, bucket, s3, tmp_path)
