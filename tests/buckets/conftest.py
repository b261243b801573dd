"""Fixtures of the tests of models in buckets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback_s3 import Bucket, Proxy, Server, before, servers, start
from served_objects import served

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
