"""Promise: what holds for tasks in a bucket of S3 holds in Google Cloud Storage and in Azure."""

from __future__ import annotations

from pathlib import Path

import pytest
from any_bucket_task import (
    models,
    test_a_shard_that_another_task_uploaded_is_compared,
    test_a_task_that_is_given_up_before_its_record,
    test_a_task_that_is_given_up_while_it_uploads,
    test_a_task_that_was_given_up_before_it_began,
    test_two_tasks_that_upload_at_once,
    test_what_is_not_as_its_record_is_not_journaled,
    test_what_was_uploaded_is_journaled_once,
)
from bucket_tasks import InBucket
from loopback_clouds import Cloud, Container, fixtures
from shard_tasks import RECIPES, Shards

__all__ = [
    "models",
    "test_a_shard_that_another_task_uploaded_is_compared",
    "test_a_task_that_is_given_up_before_its_record",
    "test_a_task_that_is_given_up_while_it_uploads",
    "test_a_task_that_was_given_up_before_it_began",
    "test_two_tasks_that_upload_at_once",
    "test_what_is_not_as_its_record_is_not_journaled",
    "test_what_was_uploaded_is_journaled_once",
]

cloud, bucket = fixtures.cloud, fixtures.bucket


@pytest.fixture(scope="module", autouse=True)
def only_with_soak(request: pytest.FixtureRequest) -> None:
    """Skip the tests without --soak, before an emulator is started."""
    if not request.config.getoption("--soak"):
        pytest.skip("S3 is enough for every day: the other clouds with --soak")


@pytest.fixture
def proxy() -> None:
    """Return None: the emulators have no proxy."""


@pytest.fixture
def run(models: Path, cloud: Cloud, bucket: Container, tmp_path: Path) -> InBucket:
    return InBucket(Shards(models, RECIPES["copies"], tmp_path), bucket)
