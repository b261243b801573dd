"""Promise: a complete shard of a task is journaled once; one that contradicts the ledger is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from driver_bench import NODES, Bench

from resumerge.digests import HASH_BYTES
from resumerge.engine.cluster.exchange import folder
from resumerge.engine.cluster.exchange.base import Beat, TaskAbandoned
from resumerge.engine.cluster.exchange.folder import FolderEndpoint, FolderExchange
from resumerge.engine.shards.shard_files import TASKS
from resumerge.engine.shards.shard_record import Uploaded
from resumerge.errors import Reason, Resumable
from resumerge.planning.plan import Shard

NODE = NODES[0]

# What is found


def exchange_of(bench: Bench) -> tuple[FolderExchange, Path]:
    [attempt] = [
        path
        for path in (bench.shards.out / TASKS).iterdir()
        if path.name != bench.shards.attempt.name
    ]
    return bench.exchange, attempt


def test_a_driver_and_its_tasks_meet_in_a_folder_of_the_attempt(bench: Bench) -> None:
    exchange, attempt = exchange_of(bench)
    assert len(attempt.name) == 16 and attempt.is_dir()
    own = exchange.endpoint("shard1-2", bench.plan.shards[1])
    assert own == FolderEndpoint(attempt, "shard1-2", 1, bench.shards.out)
    with own.working_folder() as working:
        assert working == attempt / "shard1-2"
        own.beat(Beat(NODE, 4))
        beats = exchange.beats(["shard1-2", "shard0-1"])
        assert beats == {"shard1-2": Beat(NODE, 4)}
        exchange.give_up("shard0-1")
        own.beat(Beat(NODE, 5))
        exchange.give_up("shard1-2")
        with pytest.raises(TaskAbandoned):
            own.beat(Beat(NODE, 6))
    assert not working.exists()
    exchange.give_up("shard1-2")
    with pytest.raises(ZeroDivisionError), own.working_folder():
        raise ZeroDivisionError
    assert not working.exists()
    exchange.close()
    assert not (bench.shards.out / TASKS).exists()


def test_a_record_counts_where_its_shard_is_whole(bench: Bench) -> None:
    exchange, attempt = exchange_of(bench)
    shard, record = bench.plan.shards[0], bench.computed.finished[0].record
    folder.write_record(attempt, 0, record, bench.context.storage)
    assert exchange.record("shard0-1", shard) is None
    bench.publishes(0)
    assert exchange.record("shard0-1", shard) == record
    with bench.files.final(shard).open("ab") as file:
        file.write(b"more")
    assert exchange.record("shard0-1", shard) is None
    bench.publishes(0)
    exchange.journaled("shard0-1", shard)
    assert exchange.record("shard0-1", shard) is None and not [*attempt.iterdir()]
    exchange.journaled("shard0-1", shard)


def test_a_shard_is_waited_for_until_a_network_shows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver waits for a limited time, and not at all if another file has the name."""
    shard, record = bench.plan.shards[0], bench.computed.finished[0].record
    now, waits = [0.0], list[str]()
    exchange = FolderExchange(bench.plan, bench.ledger, bench.files, lambda: waits.append("w"))

    def sleep(seconds: float) -> None:
        now[0] += 10.0
        if now[0] == 50.0:
            bench.publishes(0)

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(folder, "time", clock)
    assert exchange.has(shard, record) and len(waits) == 5
    assert exchange.has(shard, record) and len(waits) == 5
    bench.files.final(shard).write_bytes(b"another")
    assert not exchange.has(shard, record) and len(waits) == 5
    bench.files.final(shard).unlink()
    now[0] = 100.0
    assert not exchange.has(shard, record)
    assert now[0] == 100.0 + folder.VISIBLE_SECONDS + 10.0


def test_what_was_published_is_adopted(bench: Bench) -> None:
    folder.write_record(
        bench.shards.attempt, 1, bench.computed.finished[1].record, bench.context.storage
    )
    bench.publishes(1)
    assert bench.exchange.adopt() == [1]
    assert bench.is_sealed(1) and not (bench.shards.out / TASKS).exists()


# The journal


def test_a_shard_is_journaled_with_all_that_is_known_of_it(bench: Bench) -> None:
    """Units that were complete before are not counted again."""
    shard, finished = bench.plan.shards[1], bench.publishes(1)
    first, *rest = finished.record.units
    bench.ledger.units.commit_batch(bench.attempt, 1, [first], {"units_committed": 1})
    journal = replace(bench.journal, progress=bench.ledger.units.progress())
    nbytes = {unit.number: unit.nbytes for unit in bench.plan.units}
    assert (journal.units_done, journal.bytes_done) == (1, nbytes[first.number])
    begun = bench.files.partial(shard)
    begun.write_bytes(b"begun")
    assert journal.commit(shard, finished, "t1")
    of_shard = sum(nbytes[unit.number] for unit in finished.record.units)
    assert (journal.units_done, journal.bytes_done) == (1 + len(rest), of_shard)
    assert bench.is_sealed(1) and bench.announced == [1] and not begun.exists()
    assert bench.watch.units == [u.name for u in bench.plan.units[shard.first : shard.last]]
    row = bench.ledger.attempts.all()[-1]
    assert (row["units_committed"], row["bytes_committed"]) == (
        len(rest),
        of_shard - nbytes[first.number],
    )
    assert row["peak_rss"] > 1 << 20
    stored = bench.ledger.units.progress()
    for unit in finished.record.units:
        known = journal.progress[unit.number]
        assert known.is_complete and known.hashes == stored[unit.number].hashes == unit.hashes
        assert known.committed_blocks == stored[unit.number].committed_blocks == 1
        assert known.checksum == stored[unit.number].checksum
    assert {stored[unit.number].batch for unit in rest} == {1}
    assert journal.commit(bench.plan.shards[0], bench.publishes(0), "t0")
    assert {
        stored.batch for stored in bench.ledger.units.progress()[: bench.plan.shards[0].last]
    } == {2}
    units = len(rest) + bench.plan.shards[0].last
    assert bench.ledger.attempts.all()[-1]["units_committed"] == units
    for number in range(2, len(bench.plan.shards)):
        assert journal.commit(bench.plan.shards[number], bench.publishes(number), "t")
    assert bench.ledger.units.measurements() == bench.shards.measurements
    bench.ledger.check_rows()


def test_blocks_that_were_committed_before_are_counted_once(bench: Bench) -> None:
    shard, finished = bench.plan.shards[1], bench.publishes(1)
    last, progress = finished.record.units[-1], [*bench.journal.progress]
    progress[last.number] = replace(progress[last.number], committed_blocks=1, hashes=last.hashes)
    journal = replace(bench.journal, progress=progress)
    assert journal.bytes_done > 0 and journal.commit(shard, finished, "t1")
    of_shard = bench.plan.units[shard.first : shard.last]
    assert journal.bytes_done == sum(unit.nbytes for unit in of_shard)


def test_what_contradicts_the_ledger_is_told_and_nothing_is_journaled(bench: Bench) -> None:
    """The error names the first block whose hash differs from the known one."""
    shard, finished = bench.plan.shards[1], bench.publishes(1)
    *_, last = finished.record.units
    ours, theirs = (bytes([n]) * HASH_BYTES for n in (1, 2))
    more = replace(last, hashes=last.hashes + theirs + last.hashes)
    record = replace(finished.record, units=(*finished.record.units[:-1], more))
    known = bench.journal.progress[last.number]
    bench.journal.progress[last.number] = replace(known, hashes=last.hashes)
    bench.journal.compare(shard, record, "t1", str(NODE))
    bench.journal.progress[last.number] = replace(known, hashes=last.hashes + ours)
    with pytest.raises(Resumable) as conflict:
        bench.journal.commit(shard, replace(finished, record=record), "t1")
    assert conflict.value.reason == "hash_conflict"
    assert f"block 1 had the hash {ours.hex()} first, and {theirs.hex()}" in str(conflict.value)
    [(kind, data)] = bench.events()
    assert kind == "hash_conflict" and data == {
        "shard": shard.name,
        "task": "t1",
        "node": str(NODE),
        "tensor": bench.plan.units[last.number].name,
        "block": 1,
        "first": ours.hex(),
        "second": theirs.hex(),
    }
    assert not bench.is_sealed(1) and not bench.watch.units
    assert not any(known.hashes for known in bench.ledger.units.progress())


def test_a_shard_of_a_source_that_changed_is_not_journaled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(units: object) -> None:
        raise Resumable(Reason.SOURCE_CHANGED, "a")

    monkeypatch.setattr(bench.watch, "check", changed)
    with pytest.raises(Resumable):
        bench.journal.commit(bench.plan.shards[1], bench.publishes(1), "t1")
    assert not bench.is_sealed(1) and not bench.announced
    assert not any(known.hashes for known in bench.ledger.units.progress())


def test_a_shard_in_a_bucket_is_in_the_mirror_with_its_digest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, finished = bench.plan.shards[1], bench.publishes(1)
    bench.ledger.set_mirror("s3://box/m")
    record = replace(finished.record, uploaded=Uploaded(shard.nbytes, "1" * 64, "e"))
    gone: list[tuple[str, Shard]] = []
    monkeypatch.setattr(bench.exchange, "journaled", lambda task, of: gone.append((task, of)))
    assert bench.journal.commit(shard, replace(finished, record=record), "t1")
    assert bench.ledger.mirrored.checksums() == {shard.name: "1" * 64}
    assert gone == [("t1", shard)]
