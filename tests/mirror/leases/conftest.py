"""Leases in a folder, of which the time is virtual."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_leases import SECONDS
from plain_folder import PlainFolder
from virtual_time import VirtualTime, virtual_time

from resumerge.mirror import Lease


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", str(SECONDS))


@pytest.fixture(autouse=True)
def world(request: pytest.FixtureRequest) -> Iterator[VirtualTime]:
    """Yield the virtual time that leases and the test's own `time` see."""
    with virtual_time(request.module) as world:
        yield world


@pytest.fixture
def store(tmp_path: Path) -> PlainFolder:
    return PlainFolder(tmp_path / "mirror")


@pytest.fixture
def leases(world: VirtualTime) -> Iterator[list[Lease]]:
    """Yield a list of leases that are stopped after the test."""
    leases: list[Lease] = []
    yield leases
    for lease in leases:
        lease.stop()
