"""Promise: the ledger knows what the last two batches wrote, and forgets all of what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import RUN, SHARD, UNIT

from resumerge.engine.recovery.recovery import LAST_BATCHES
from resumerge.ledger import Ledger, UnitCommit

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Yield a ledger of two shards of three tensors, numbered 0 to 5."""
    with closing(Ledger.create(tmp_path / "ledger.db")) as ledger:
        shards = [{**SHARD, "number": n, "name": name} for n, name in enumerate(SHARDS)]
        units = [{**UNIT, "number": n, "name": f"t{n}", "shard": n // 3} for n in range(6)]
        ledger.begin(RUN, [], shards, units)
        yield ledger


def commit(ledger: Ledger, attempt: int, batch: int, *numbers: int) -> None:
    units = [
        UnitCommit(
            number=n,
            hashes=bytes(range(n, n + 16)),
            input_hashes=bytes(16),
            checksum=f"{n:032x}",
            seconds=0.5,
        )
        for n in numbers
    ]
    totals = {"units_committed": 0, "bytes_committed": 0}
    ledger.units.commit_batch(attempt, batch, units, totals)


def attempt(ledger: Ledger) -> int:
    return ledger.attempts.start({"pid": 1, "host": "here", "boot_id": None})


def test_a_commit_waits_for_the_disk(ledger: Ledger) -> None:
    """A power cut loses the last transactions of a write-ahead log unless `synchronous` is FULL."""
    assert ledger._db.rows("PRAGMA journal_mode") == [{"journal_mode": "wal"}]
    assert ledger._db.rows("PRAGMA synchronous") == [{"synchronous": 2}]
    for name in ("fullfsync", "checkpoint_fullfsync"):  # what macOS's fsync(2) leaves undone
        assert ledger._db.rows(f"PRAGMA {name}") == [{name: 1}]


def test_the_last_two_batches(ledger: Ledger) -> None:
    """One batch is synced while the next is computed, so a crash may leave two in doubt."""
    first = attempt(ledger)
    commit(ledger, first, 8, 5)
    commit(ledger, first, 9, 4)
    second = attempt(ledger)
    assert ledger.units.recent(LAST_BATCHES) == {4, 5}, "where the last attempt committed nothing"
    commit(ledger, second, 1, 0)
    assert ledger.units.recent(LAST_BATCHES) == {0}
    commit(ledger, second, 2, 1, 2)
    commit(ledger, second, 3, 3)
    assert ledger.units.recent(LAST_BATCHES) == {1, 2, 3}
    assert ledger.units.recent(1) == {3}


def test_before_the_first_batch_there_is_none(ledger: Ledger) -> None:
    assert ledger.units.recent(LAST_BATCHES) == set()


def test_what_another_machine_committed_is_of_no_batch_here(ledger: Ledger) -> None:
    commit(ledger, attempt(ledger), 1, 0, 1, 2)
    adopted = [dict(unit) for unit in ledger.units.all(0)]
    ledger.shards.adopt_mirrored({0: adopted}, {})
    assert ledger.units.recent(LAST_BATCHES) == set()


def test_a_forgotten_unit_leaves_nothing_behind(ledger: Ledger) -> None:
    """The unit's results, the shard's seal and the record of its copy in the mirror are deleted."""
    commit(ledger, attempt(ledger), 1, 0, 1, 2, 3, 4, 5)
    for number, name in enumerate(SHARDS):
        ledger.shards.seal(number)
        ledger.mirrored.record(name, 24, "a" * 64)
    kept = [unit for unit in ledger.units.all() if unit["number"] != 1]
    ledger.units.forget([1], "checksum_mismatch", shard=SHARDS[0])
    lost = ledger.units.all()[1]
    results = ("block_hashes", "input_hashes", "checksum")
    assert (lost["state"], lost["committed_blocks"]) == ("pending", 0)
    assert [lost[column] for column in results] == [None] * 3
    assert [unit for unit in ledger.units.all() if unit["number"] != 1] == kept
    assert [shard["state"] for shard in ledger.shards.all()] == ["open", "sealed"]
    assert ledger.shards.all()[0]["sealed_at"] is None
    assert set(ledger.mirrored.checksums()) == {SHARDS[1]}
    assert ledger.shards.unmirrored() == []
    assert ledger.shards.reset_shards() == {SHARDS[0]}
    [event] = ledger.events.all("checksum_mismatch")
    assert event["data"] == {"units": 1, "shard": SHARDS[0]}


def test_units_of_several_shards_are_forgotten_at_once(ledger: Ledger) -> None:
    commit(ledger, attempt(ledger), 1, 0, 1, 2, 3, 4, 5)
    for number, name in enumerate(SHARDS):
        ledger.shards.seal(number)
        ledger.mirrored.record(name, 24, "a" * 64)
    ledger.units.forget([2, 3], "source_differs")
    assert [unit["number"] for unit in ledger.units.all() if not unit["committed_blocks"]] == [2, 3]
    assert ledger.shards.open() == SHARDS
    assert ledger.mirrored.checksums() == {}
