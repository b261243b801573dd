"""Promise: what the ledger says of an attempt stays so, whatever happens to other attempts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import RUN, SHARD, UNIT, change, query

from resumerge.ledger import Ledger, UnitCommit
from resumerge.supervisor import ledger_entries

LONG_AGO, LATER = "2020-01-01T00:00:00.000+00:00", "2020-01-01T00:07:00.000+00:00"
COUNTS = {"units_committed": 1, "bytes_committed": 16, "peak_rss": 700, "batch_bytes": 8}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """Yield a ledger of two tensors of two blocks each, in one shard."""
    with closing(Ledger.create(path)) as ledger:
        unit = {**UNIT, "blocks": 2, "block_elements": 2}
        second = {**unit, "number": 1, "name": "bias", "offset": 24}
        ledger.begin(RUN, [], [{**SHARD, "nbytes": 40}], [unit, second])
        yield ledger


def start(ledger: Ledger, pid: int) -> int:
    return ledger.attempts.start({"pid": pid, "host": "here", "boot_id": None})


def attempt(path: Path, n: int) -> dict[str, Any]:
    [row] = query(path, f"SELECT * FROM attempts WHERE n = {n}")
    return row


def commit(ledger: Ledger, attempt: int, batch: int, blocks: int, seconds: float) -> None:
    """Commit the first blocks of the first tensor."""
    checksum = "1" * 32 if blocks == 2 else None
    unit = UnitCommit(
        number=0, hashes=bytes(16 * blocks), input_hashes=b"", checksum=checksum, seconds=seconds
    )
    ledger.units.commit_batch(attempt, batch, [unit], COUNTS)


def test_an_attempt_that_ended_stays_as_it_was(ledger: Ledger, path: Path) -> None:
    first = start(ledger, 10)
    commit(ledger, first, 1, 1, 0.5)
    ledger.attempts.end(first, "interrupted", peak_rss=900, seconds=3.0, merging_seconds=2.0)
    before = attempt(path, first)
    assert before["ended"] and before["started"]
    second = start(ledger, 11)
    commit(ledger, second, 1, 2, 0.25)
    ledger.attempts.end(second, "done", peak_rss=100, seconds=1.0, merging_seconds=1.0)
    ledger.attempts.close(10, "killed", 10_000)
    assert attempt(path, first) == before
    assert (attempt(path, second)["outcome"], attempt(path, second)["seconds"]) == ("done", 1.0)


def test_an_attempt_that_never_ended_was_last_there_when_it_was_seen(
    ledger: Ledger, path: Path
) -> None:
    first = start(ledger, 10)
    commit(ledger, first, 1, 1, 0.5)
    change(path, f"UPDATE attempts SET started = '{LONG_AGO}', last_seen = '{LATER}'")
    second = start(ledger, 11)
    killed = attempt(path, first)
    assert (killed["outcome"], killed["ended"], killed["peak_rss"]) == ("killed", LATER, 700)
    assert attempt(path, second)["ended"] is None
    assert attempt(path, second)["outcome"] is None


@pytest.mark.parametrize(
    ("own", "measured", "kept"), [(700, 900, 900), (700, 500, 700), (None, 500, 500)]
)
def test_the_larger_peak_of_a_worker_that_died_is_kept(
    ledger: Ledger, path: Path, own: int | None, measured: int, kept: int
) -> None:
    """The worker's batches record its own peak; the supervisor may measure before or after that."""
    number = start(ledger, 10)
    if own:
        commit(ledger, number, 1, 1, 0.5)
    ledger_entries.record_interrupted(path, 10, measured)
    closed = attempt(path, number)
    assert (closed["peak_rss"], closed["outcome"]) == (kept, "interrupted")
    assert closed["ended"] >= closed["started"]


def test_only_the_attempt_of_the_process_that_died_is_closed(ledger: Ledger, path: Path) -> None:
    """The system reuses the numbers of processes."""
    first = start(ledger, 10)
    ledger.attempts.end(first, "interrupted", peak_rss=900, seconds=3.0)
    before = attempt(path, first)
    second = start(ledger, 10)
    ledger_entries.record_interrupted(path, 9, 500)
    assert attempt(path, second)["ended"] is None
    ledger_entries.record_interrupted(path, 10, 500)
    assert attempt(path, second)["outcome"] == "interrupted"
    assert attempt(path, first) == before


def test_a_tensor_s_seconds_add_up_over_batches_and_attempts(ledger: Ledger, path: Path) -> None:
    commit(ledger, start(ledger, 10), 1, 1, 0.5)
    commit(ledger, start(ledger, 11), 1, 2, 0.25)
    seconds = "SELECT seconds, state, attempt FROM units ORDER BY number"
    computed, pending = query(path, seconds)
    assert computed == {"seconds": 0.75, "state": "committed", "attempt": 2}
    assert pending == {"seconds": None, "state": "pending", "attempt": None}


def test_a_batch_counts_for_its_own_attempt(ledger: Ledger, path: Path) -> None:
    first = start(ledger, 10)
    commit(ledger, first, 7, 1, 0.5)
    before = attempt(path, first)
    second = start(ledger, 11)
    ledger.units.commit_batch(second, 1, [], {**COUNTS, "bytes_committed": 1})
    assert attempt(path, first)["bytes_committed"] == before["bytes_committed"] == 16
    assert (attempt(path, first)["batches"], attempt(path, second)["batches"]) == (7, 1)
