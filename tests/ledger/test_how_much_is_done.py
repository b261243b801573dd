"""Promise: what a ledger adds up of units, shards, samples and events is what is in its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from ledger_rows import RUN, SHARD, UNIT, change

from resumerge.ledger import Ledger, Sample, UnitCommit

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
COUNTS = {"units_committed": 0, "bytes_committed": 0}
SAMPLE = Sample(rss=1, available=1, budget=1, batch_bytes=1, bytes_done=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """Yield a ledger of one attempt, and of two shards of two tensors of four blocks, 100 bytes."""
    with closing(Ledger.create(path)) as ledger:
        shards = [{**SHARD, "number": n, "name": name} for n, name in enumerate(SHARDS)]
        unit = {**UNIT, "blocks": 4, "nbytes": 100}
        ledger.begin(
            RUN,
            [],
            shards,
            [{**unit, "number": n, "name": f"t{n}", "shard": n // 2} for n in range(4)],
        )
        ledger.attempts.start({"pid": 1, "host": "here", "boot_id": None})
        yield ledger


def commit(ledger: Ledger, batch: int, number: int, blocks: int) -> None:
    checksum = "1" * 32 if blocks == 4 else None
    unit = UnitCommit(
        number=number,
        hashes=b"h" * 16 * blocks,
        input_hashes=b"i" * 32 * blocks,
        checksum=checksum,
        seconds=0.5,
    )
    ledger.units.commit_batch(1, batch, [unit], COUNTS)


def sample(ledger: Ledger, attempt: int, **values: int) -> None:
    measured = replace(SAMPLE, **values)
    ledger.units.commit_batch(attempt, 1, [], COUNTS, measured)


def test_a_tensor_counts_as_far_as_it_is_committed(ledger: Ledger) -> None:
    commit(ledger, 1, 0, 4)
    commit(ledger, 2, 1, 3)
    commit(ledger, 3, 2, 4)
    ledger.shards.seal(0)
    assert asdict(ledger.totals()) == {
        "units": 4,
        "units_committed": 2,
        "nbytes": 400,
        "nbytes_committed": 275,
        "shards": 2,
        "shards_sealed": 1,
        "shards_copied": 0,
    }
    assert ledger.units.committed_blocks() == 11
    assert (ledger.shards.sealed(), ledger.shards.open()) == (SHARDS[:1], SHARDS[1:])


def test_progress_has_the_inputs_of_what_is_not_complete(ledger: Ledger) -> None:
    """The hashes of the inputs take memory; they are needed to continue within a tensor."""
    commit(ledger, 7, 0, 4)
    commit(ledger, 8, 1, 3)
    whole, part, none, _ = ledger.units.progress()
    assert (whole.committed_blocks, whole.hashes, whole.input_hashes) == (4, b"h" * 64, b"")
    assert (part.committed_blocks, part.hashes, part.input_hashes) == (3, b"h" * 48, b"i" * 96)
    assert (none.committed_blocks, none.hashes, none.input_hashes) == (0, b"", b"")
    assert [(known.checksum, known.attempt, known.batch) for known in (whole, part, none)] == [
        ("1" * 32, 1, 7), (None, 1, 8), (None, None, None)
    ]  # fmt: skip
    assert ledger.units.all()[0]["input_hashes"] == b"i" * 128, (
        "which a changed model is compared with"
    )


def test_a_shard_is_to_be_mirrored_once_it_is_sealed_and_until_it_is_there(ledger: Ledger) -> None:
    assert ledger.shards.unmirrored() == []
    ledger.shards.seal(1)
    ledger.shards.seal(0)
    assert ledger.shards.unmirrored() == SHARDS
    assert all(shard["sealed_at"] for shard in ledger.shards.all())
    ledger.mirrored.record(SHARDS[0], 24, "a" * 64)
    assert ledger.shards.unmirrored() == SHARDS[1:]
    ledger.mirrored.forget(SHARDS[0])
    assert ledger.shards.unmirrored() == SHARDS


def test_a_tensor_that_was_never_committed_is_not_forgotten(ledger: Ledger) -> None:
    commit(ledger, 1, 2, 1)
    assert ledger.shards.reset_shards() == set()
    ledger.units.forget([2], "lost")
    assert ledger.shards.reset_shards() == {SHARDS[1]}
    commit(ledger, 2, 2, 1)
    assert ledger.shards.reset_shards() == set()


def test_the_tensors_of_one_shard_or_of_all(ledger: Ledger) -> None:
    assert [unit["name"] for unit in ledger.units.all()] == ["t0", "t1", "t2", "t3"]
    assert [unit["name"] for unit in ledger.units.all(0)] == ["t0", "t1"]
    assert [unit["name"] for unit in ledger.units.all(1)] == ["t2", "t3"]


def test_samples_that_are_drawn_as_one_keep_their_extremes(ledger: Ledger, path: Path) -> None:
    assert ledger.samples.last() is None and ledger.samples.groups(5) == []
    for n, (rss, left) in enumerate([(5, 50), (9, 10), (2, 70), (7, 90)], 1):
        values = {"budget": 20 + n, "batch_bytes": 30 - n, "bytes_done": 100 * n}
        sample(ledger, 1, rss=rss, available=left, **values)
        change(path, f"UPDATE samples SET at = '2026-01-01T00:00:0{n}+00:00' WHERE id = {n}")
    last = ledger.samples.last() or {}
    assert (last["id"], last["rss"], last["bytes_done"]) == (4, 7, 400)
    one, other = ledger.samples.groups(2)
    assert one == {
        **{"attempt": 1, "at": "2026-01-01T00:00:01+00:00", "until": "2026-01-01T00:00:02+00:00"},
        **{"rss_low": 5, "rss_high": 9, "budget": 22, "batch_low": 28, "batch_high": 29},
        **{"done": 200, "left_low": 19, "left_high": 55},
    }
    assert other == {
        **{"attempt": 1, "at": "2026-01-01T00:00:03+00:00", "until": "2026-01-01T00:00:04+00:00"},
        **{"rss_low": 2, "rss_high": 7, "budget": 24, "batch_low": 26, "batch_high": 27},
        **{"done": 400, "left_low": 72, "left_high": 97},
    }
    assert len(ledger.samples.groups(4)) == len(ledger.samples.groups(1000)) == 4
    assert [row["done"] for row in ledger.samples.groups(1)] == [400]


def test_samples_of_two_attempts_are_not_drawn_as_one(ledger: Ledger) -> None:
    sample(ledger, 1)
    second = ledger.attempts.start({"pid": 2, "host": "here", "boot_id": None})
    sample(ledger, second)
    sample(ledger, second)
    assert [row["attempt"] for row in ledger.samples.groups(1)] == [1, 2]


def test_events_of_a_kind_oldest_first_each_of_its_attempt(ledger: Ledger) -> None:
    assert ledger.events.last("noted") is None
    ledger.events.add("noted", after=1)
    ledger.attempts.start({"pid": 2, "host": "here", "boot_id": None})
    ledger.events.add("other")
    ledger.events.add("noted", after=2)
    ledger.events.add("third")
    told = [(event["kind"], event["attempt"], event["data"]) for event in ledger.events.all()]
    assert told == [
        ("noted", 1, {"after": 1}), ("other", 2, {}), ("noted", 2, {"after": 2}), ("third", 2, {})
    ]  # fmt: skip
    assert [event["data"]["after"] for event in ledger.events.all("noted")] == [1, 2]
    assert [event["kind"] for event in ledger.events.all("third", "other")] == ["other", "third"]
    last = ledger.events.last("noted", "other") or {}
    assert (last["kind"], last["data"]) == ("noted", {"after": 2})


def test_an_event_before_the_first_attempt_is_of_none(path: Path) -> None:
    with closing(Ledger.create(path.with_name("other.db"))) as ledger:
        ledger.begin(RUN, [], [SHARD], [UNIT])
        ledger.events.add("noted")
        assert ledger.events.all()[0]["attempt"] is None


def test_what_belongs_together_is_stored_together_or_not_at_all(ledger: Ledger) -> None:
    """A batch whose sample cannot be stored is not committed."""
    before = ledger.units.all(), ledger.attempts.all()
    unit = UnitCommit(number=0, hashes=b"h" * 64, input_hashes=b"", checksum="1" * 32, seconds=0.5)
    with pytest.raises(Exception, match="too large"):
        ledger.units.commit_batch(1, 1, [unit], COUNTS, replace(SAMPLE, rss=1 << 70))
    assert (ledger.units.all(), ledger.attempts.all()) == before
    with pytest.raises(Exception, match="number"):
        ledger.fill({"sources": [], "shards": [{**SHARD, "number": 2}, {**SHARD, "number": 0}]})
    assert len(ledger.shards.all()) == 2


def test_what_a_run_wrote_by_name(ledger: Ledger) -> None:
    assert ledger.written_names() == SHARDS
    ledger.companions.record("config.json", 2, "0" * 32)
    ledger.companions.record("config.json", 3, "1" * 32)
    assert ledger.written_names() == [*SHARDS, "config.json"]
    assert ledger.companions.checksums() == {"config.json": "1" * 32}
    for path, inode in (("/a", 1), ("/b", 2), ("/a", 3)):
        ledger.downloads.record(path, "org/model", "file", 5, inode)
    assert ledger.downloads.inodes() == {"/a": 3, "/b": 2}
    ledger.downloads.evict("/a", "file", 5)
    assert ledger.downloads.inodes() == {"/b": 2}
    assert [event["data"] for event in ledger.events.all()] == [{"file": "file", "bytes": 5}]
