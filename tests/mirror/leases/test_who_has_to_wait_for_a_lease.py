"""Promise: who cannot have a lease at once is told why, and waits no longer than it has to."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest
from made_up_leases import ELSEWHERE, SECONDS, seconds_to_acquire, write
from made_up_mirrors import edited_manifest
from plain_folder import PlainFolder

from resumerge.errors import InputError
from resumerge.mirror import Lease, Store
from resumerge.mirror.lease import lease_seconds
from resumerge.mirror.names import MANIFEST_FILE
from resumerge.mirror.stores import registry


def test_how_long_a_lease_lasts_in_each_kind_of_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease lasts as long as docs/mirrors.md says; the Hub allows few commits."""
    monkeypatch.delenv("RESUMERGE_LEASE_SECONDS")
    seconds = {
        scheme: lease_seconds(cast("Store", kind)) for scheme, kind in registry.STORES.items()
    }
    assert seconds == {"": 40, "hf": 480, "s3": 80, "gs": 80, "az": 80}


def test_a_store_whose_clock_fails_makes_no_lease_old(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> datetime:
        raise OSError("for now")

    monkeypatch.setattr(store, "now", fails)
    write(store, replace(ELSEWHERE, at="2020-01-01T00:00:00+00:00"))
    assert seconds_to_acquire(store, leases) >= SECONDS


def test_who_takes_over_an_old_lease_says_so(store: PlainFolder, leases: list[Lease]) -> None:
    store.clock = datetime.now(UTC)
    write(store, replace(ELSEWHERE, at="2020-01-01T00:00:00+00:00"))
    notes: list[str] = []
    assert seconds_to_acquire(store, leases, note=notes.append) == 0
    [note] = notes
    assert note.startswith(
        f"{ELSEWHERE} has not renewed its lease of {store.url} for more than 1 h"
    )


def test_who_watches_a_lease_for_long_says_so_and_looks_every_five_seconds(
    store: PlainFolder, leases: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment sets how long a lease is watched, whatever seconds the lease names."""
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", "400")
    write(store, replace(ELSEWHERE, seconds=3600.0))
    beats: list[None] = []
    notes: list[str] = []
    took = seconds_to_acquire(
        store, leases, note=notes.append, heartbeat=lambda: beats.append(None)
    )
    assert took == pytest.approx(400, abs=0.1) and 80 <= len(beats) <= 82
    assert [note.partition(": ")[0] for note in notes] == [
        f"{ELSEWHERE} holds the lease of the {store.place}. Checking for 400 s whether it is alive "
        "(--take-over skips this)",
        f"{ELSEWHERE} is dead",
    ]


def test_who_is_refused_reads_when_the_owner_was_last_heard_from(store: PlainFolder) -> None:
    write(store, ELSEWHERE)
    renewed = replace(ELSEWHERE.renewed(released=False), at="2031-02-03T04:05:06+00:00")
    with pytest.raises(InputError) as refused:
        Lease.acquire(store, "run", heartbeat=lambda: write(store, renewed))
    text = str(refused.value)
    assert "Another machine is working on this mirror" in text and renewed.at in text


def test_two_machines_in_a_row_may_be_quicker(store: PlainFolder, leases: list[Lease]) -> None:
    """Each of two other machines has released its lease before this machine looks again."""
    quicker = iter((1, 2))

    def happens(operation: str) -> None:
        if operation == "put_if_absent" and (token := next(quicker, None)):
            write(PlainFolder(store.folder), replace(ELSEWHERE, released=True), token)

    store.fails = happens
    assert seconds_to_acquire(store, leases) < SECONDS
    assert leases[0].token == 3


def test_the_token_of_who_finished_a_mirror_counts(store: PlainFolder, leases: list[Lease]) -> None:
    """The machine that finished the mirror has no lease any more; its late requests may arrive."""
    said = {"run": "r", "fingerprint": "0", "seed": 0, "shard_size": 1, "units": 1, "files": {},
            "created": "2026-01-01T00:00:00+00:00", "attempts": [], "token": 41}  # fmt: skip
    store.put({MANIFEST_FILE: edited_manifest(json.dumps(said | {"checksum": ""}).encode())})
    leases.append(Lease.acquire(store, "run"))
    assert leases[0].token == 42
