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
    """Yield a server that speaks the protocol of S3."""
    with start("moto") as server:
        yield server


@pytest.fixture(scope="module", params=["moto", "seaweedfs"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server that speaks the protocol of S3: moto, then SeaweedFS."""
    if why := servers.missing(request.param):
        pytest.skip(why)
    with start(request.param) as server:
        yield server


@pytest.fixture
def bucket(s3: Server) -> Bucket:
    return Bucket(s3.env())


@pytest.fixture
def proxy(s3: Server) -> Iterator[Proxy]:
    """Yield a proxy before the server."""
    with before(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `HF_HOME` be a new folder, and return it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


@pytest.fixture
def objects(served: Objects, home: Path, sleeps: list[float]) -> Objects:
    """Store a model in one file on a server; retries do not wait."""
    served.clear()
    served.upload("m", FILES)
    return served


@pytest.fixture
def metadata() -> MetadataCache:
    return MetadataCache()
