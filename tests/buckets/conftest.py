"""Fixtures of the tests of models in buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_s3 import Bucket, Proxy, Server, before, servers, start
from model_in_a_bucket import FILES
from served_objects import Objects, served

from resumerge.remote.metadata_cache import MetadataCache

__all__ = ["served"]


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """A server that speaks the protocol of S3."""
    with start("moto") as server:
        yield server


@pytest.fixture(scope="module", params=["moto", "seaweedfs"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each of two servers."""
    if why := servers.missing(request.param):
        pytest.skip(why)
    with start(request.param) as server:
        yield server


@pytest.fixture
def bucket(s3: Server) -> Bucket:
    return Bucket(s3.env())


@pytest.fixture
def proxy(s3: Server) -> Iterator[Proxy]:
    """Before the server."""
    with before(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's place."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


@pytest.fixture
def objects(served: Objects, home: Path, sleeps: list[float]) -> Objects:
    """A model in one file; nobody waits."""
    served.clear()
    served.upload("m", FILES)
    return served


@pytest.fixture
def metadata() -> MetadataCache:
    return MetadataCache()
