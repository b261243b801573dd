"""Fixtures of the tests of clouds, which the files of these tests import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopback_clouds import KINDS, Cloud, Container, missing, start


@pytest.fixture(scope="module", params=sorted(KINDS))
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """Yield an emulator of each cloud."""
    if why := missing(request.param):
        pytest.skip(why)
    with start(request.param) as found:
        yield found


@pytest.fixture
def bucket(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Container:
    """Make a new container, to which this process's environment directs the cloud's library."""
    for name, value in cloud.env().items():
        monkeypatch.setenv(name, value)
    return cloud.new()
