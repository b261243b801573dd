"""Promise: where a store cannot hold a lease, the user says that no other machine works there: once
for each machine that works there, and again after another one has."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_leases import ELSEWHERE, HERE, write
from plain_folder import PlainFolder

from resumerge.errors import InputError
from resumerge.host.processes import birth
from resumerge.mirror import Lease
from resumerge.mirror.lease_record import LeaseRecord


class Unfit(PlainFolder):
    """A store that says that it cannot hold a lease."""

    def lease_obstacle(self) -> str:
        return "it ignores If-Match"


@pytest.fixture
def store(tmp_path: Path) -> Unfit:
    return Unfit(tmp_path / "mirror")


def test_it_is_said_once_for_each_machine(store: Unfit, leases: list[Lease]) -> None:
    with pytest.raises(InputError, match="--take-over"):
        Lease.acquire(store, "run")
    assert store.list() == {}
    notes: list[str] = []
    leases.append(Lease.acquire(store, "run", take_over=True, note=notes.append))
    assert "cannot hold a lease: it ignores If-Match" in notes[0]
    leases[0].release()
    leases.append(Lease.acquire(store, "run", note=notes.append))
    assert leases[1].token == 2
    assert "cannot hold a lease" in notes[1]


def test_a_worker_follows_one_that_was_killed(store: Unfit, leases: list[Lease]) -> None:
    write(store, replace(HERE, pid=2**22 - 1))
    leases.append(Lease.acquire(store, "run"))
    assert leases[0].token == 2


@pytest.mark.parametrize(
    "record",
    [
        ELSEWHERE,
        replace(ELSEWHERE, released=True),
        replace(HERE, boot_id="an earlier boot"),
        replace(HERE, pid=os.getppid(), born=birth(os.getppid()) or 0),
    ],
    ids=["another machine", "another machine that has ended", "another boot", "a live process"],
)
def test_after_others_it_is_said_again(store: Unfit, record: LeaseRecord) -> None:
    write(store, record)
    before = store.get(".resumerge/lease-000001.json")
    with pytest.raises(InputError):
        Lease.acquire(store, "run")
    assert store.get(".resumerge/lease-000001.json") == before
    assert len(store.list()) == 1
