"""Leases that last for less than a second, in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_leases import SECONDS
from plain_folder import PlainFolder

from resumerge.mirror import Lease


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", str(SECONDS))


@pytest.fixture
def store(tmp_path: Path) -> PlainFolder:
    return PlainFolder(tmp_path / "mirror")


@pytest.fixture
def leases() -> Iterator[list[Lease]]:
    """Leases that are given up after the test."""
    leases: list[Lease] = []
    yield leases
    for lease in leases:
        lease.stop()
