"""Fixtures of the tests of models in buckets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback_s3 import Bucket, Proxy, Server, before, servers, start
from served_objects import Objects, serving


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


@pytest.fixture(scope="module")
def served() -> Iterator[Objects]:
    """Objects that this process serves, and that its environment leads to, in each cloud."""
    from resumerge.buckets import google

    with serving() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.env().items():
            patch.setenv(name, value)
        patch.setattr(google, "REPEATED_SECONDS", 0.1)
        google.patience.cache_clear()
        yield found
    google.patience.cache_clear()
