"""Promise: a batch journals what it adds to each unit, and totals of its attempt alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import llama, plan
from waiting import HANGS_SECONDS

from resumerge.engine.execute import committer as module
from resumerge.engine.execute.committer import (
    LEDGER_SAMPLE_SECONDS,
    SAMPLES,
    Committer,
    WrittenBlocks,
)
from resumerge.engine.shards.checksums import unit_checksum
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import Progress, Sample
from resumerge.planning import Plan
from resumerge.planning.plan import Unit

PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"


class Bench:
    """A committer whose ledger and files record their calls."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, found: Plan, progress: Sequence[Progress]
    ) -> None:
        self.now = 1000.0
        self.told: list[tuple[str, Any]] = []
        self.batches: list[tuple[Any, ...]] = []
        self.samples: list[tuple[Any, ...]] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        snapshot = lambda ledger, storage: self.told.append(("snapshot", None))  # noqa: E731
        monkeypatch.setattr("resumerge.engine.shards.sealing.take_snapshot", snapshot)
        governor = SimpleNamespace(
            peak_rss=5, uncommitted_limit=6, rss=7, budget=8, memory=SimpleNamespace(available=9)
        )
        ledger = SimpleNamespace(
            samples=SimpleNamespace(add=lambda *sample: self.samples.append(sample)),
            units=SimpleNamespace(commit_batch=lambda *batch: self.batches.append(batch)),
            shards=SimpleNamespace(
                seal=lambda number, _: self.told.append(("sealed in the ledger", number))
            ),
        )
        files = SimpleNamespace(
            sync=lambda shards: self.told.append(("sync", shards)),
            seal=lambda shard: self.told.append(("seal", shard.number)),
        )
        watch = SimpleNamespace(
            check=lambda units: self.told.append(("check", [unit.number for unit in units]))
        )
        execution: Any = SimpleNamespace(
            plan=found, progress=progress, ledger=ledger, files=files, watch=watch,
            governor=governor, attempt=3, storage=None,
        )  # fmt: skip
        cache: Any = SimpleNamespace(finished=lambda *range_: self.told.append(("drop", range_)))
        self.units = found.units
        self.committed: list[list[int]] = []
        self.committer = Committer(
            execution,
            cache,
            lambda numbers: self.committed.append(list(numbers)),
            lambda number: self.told.append(("sealed", number)),
        )

    def commit(self, *blocks: tuple[int, int]) -> Any:
        """Commit blocks of units, by their numbers.

        Returns:
            the units, the totals and the sample that the ledger gets.
        """
        batch = [written(self.units[unit], index) for unit, index in blocks]
        self.committer.submit(batch)
        self.committer.wait()
        return self.batches[-1][2:]


def hashed(unit: int, index: int) -> bytes:
    return hash_block(bytes([unit, index]))


def written(unit: Unit, index: int) -> WrittenBlocks:
    """Return a block that took a second and has a hash of its own."""
    indices = range(index, index + 1)
    return WrittenBlocks(
        unit=unit,
        indices=indices,
        nbytes=unit.bytes_of(indices),
        hashes=hashed(unit.number, index),
        input_hashes=b"in" * 8,
        seconds=1.0,
    )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Make a plan of three units with 3, 1 and 3 blocks; the last one has its own shard."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 16)
    made = plan(COPY, llama("a", 0), shard_size=200)
    assert [(unit.blocks, unit.shard) for unit in made.units] == [(3, 0), (1, 0), (3, 1)]
    return made


def test_a_unit_is_complete_with_its_last_block(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(monkeypatch, found, [PENDING] * 3)
    [unit], totals, _ = bench.commit((0, 0), (0, 1))
    assert (unit.number, unit.checksum, unit.seconds) == (0, None, 2.0)
    assert unit.hashes == hashed(0, 0) + hashed(0, 1) and unit.input_hashes == b"in" * 16
    assert totals == {
        "units_committed": 0, "bytes_committed": 4 * 32, "peak_rss": 5, "batch_bytes": 6
    }  # fmt: skip
    [first, second], totals, _ = bench.commit((0, 2), (1, 0))
    every = b"".join(hashed(0, index) for index in range(3))
    assert (first.hashes, first.checksum) == (every, unit_checksum(every))
    assert second.checksum == unit_checksum(hashed(1, 0))
    assert (totals["units_committed"], totals["bytes_committed"]) == (2, 4 * 44)
    assert bench.committed == [[], [0, 1]]
    assert [batch[:2] for batch in bench.batches] == [(3, 1), (3, 2)]
    assert bench.told == [
        ("check", [0]), ("sync", [0]), ("drop", (found.units[0], range(2))),
        ("check", [0, 1]), ("sync", [0]), ("drop", (found.units[0], range(2, 3))),
        ("drop", (found.units[1], range(1))),
        ("seal", 0), ("sealed in the ledger", 0), ("snapshot", None), ("sealed", 0),
    ]  # fmt: skip
    bench.committer.close()


def test_blocks_of_units_that_were_computed_together_are_journaled_unit_by_unit(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(monkeypatch, found, [PENDING] * 3)
    [first, third], *_ = bench.commit((2, 0), (0, 0), (2, 1), (0, 1))
    assert (first.hashes, third.hashes) == (
        hashed(0, 0) + hashed(0, 1), hashed(2, 0) + hashed(2, 1)
    )  # fmt: skip
    assert (first.seconds, third.seconds) == (2.0, 2.0)
    assert bench.told == [
        ("check", [2, 0]), ("sync", [0, 1]),
        ("drop", (found.units[0], range(2))), ("drop", (found.units[2], range(2))),
    ]  # fmt: skip
    bench.committer.close()


def test_an_attempt_goes_on_where_the_one_before_ended(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Progress(
        committed_blocks=1,
        hashes=hashed(0, 0),
        input_hashes=b"in" * 8,
        checksum=None,
        attempt=1,
        batch=1,
    )
    done = Progress(
        committed_blocks=1,
        hashes=hashed(1, 0),
        input_hashes=b"",
        checksum="known",
        attempt=1,
        batch=1,
    )
    bench = Bench(monkeypatch, found, [begun, done, PENDING])
    assert bench.committer.bytes_committed == 4 * (16 + 4)
    [unit], totals, sample = bench.commit((0, 1), (0, 2))
    assert len(unit.hashes) == len(unit.input_hashes) == 3 * 16 and unit.checksum
    assert totals["units_committed"] == 1 and totals["bytes_committed"] == 4 * 24
    assert sample.bytes_done == bench.committer.bytes_committed == 4 * 44
    assert ("seal", 0) in bench.told and ("seal", 1) not in bench.told
    bench.committer.close()


def test_samples_are_few(found: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, found, [PENDING] * 3)
    *_, sample = bench.commit((0, 0))
    assert bench.samples == [(3, replace(sample, bytes_done=0))], "one before anything is done"
    assert sample == Sample(rss=7, available=9, budget=8, batch_bytes=6, bytes_done=4 * 16)
    bench.now += LEDGER_SAMPLE_SECONDS / 2
    assert bench.commit((0, 1))[2] is None
    bench.now += LEDGER_SAMPLE_SECONDS / 2
    assert bench.commit((0, 2))[2] is not None
    bench.now += 10 * SAMPLES * LEDGER_SAMPLE_SECONDS
    assert bench.commit((1, 0))[2] is not None
    bench.now += 9 * LEDGER_SAMPLE_SECONDS
    assert bench.commit((2, 0))[2] is None, "a long run is sampled less often"
    bench.now += 3 * LEDGER_SAMPLE_SECONDS
    assert bench.commit((2, 1))[2] is not None
    bench.committer.close()


def test_what_failed_in_a_batch_is_told_once(found: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, found, [PENDING] * 3)

    def fail(units: Any) -> None:
        raise OSError("the disk")

    bench.committer._execution.watch.check = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the disk"):
        bench.commit((0, 0))
    bench.committer.wait()
    assert not bench.batches and not any(kind == "sync" for kind, _ in bench.told)
    bench.committer.close()


def test_a_batch_is_begun_only_after_the_one_before_is_committed(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most two batches are uncommitted, and a failure ends the run before a third one."""
    bench = Bench(monkeypatch, found, [PENDING] * 3)
    checked, goes_on = bench.committer._execution.watch.check, threading.Event()

    def wait(units: Any) -> None:
        assert goes_on.wait(HANGS_SECONDS)
        checked(units)

    bench.committer._execution.watch.check = wait  # type: ignore[method-assign]
    block = written(found.units[1], 0)
    bench.committer.submit([block])
    threading.Timer(0.2, goes_on.set).start()
    bench.committer.submit([written(found.units[0], 0)])
    assert bench.committed[:1] == [[1]], "the second was not taken before"
    bench.committer.close()
    assert len(bench.committed) == 2, "what was submitted is committed when it is closed"


def test_what_failed_ends_the_run_with_the_next_batch(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(monkeypatch, found, [PENDING] * 3)

    def fail(*words: Any) -> None:
        raise OSError("the disk")

    bench.committer._execution.files.sync = fail  # type: ignore[method-assign]
    bench.committer.submit([written(found.units[1], 0)])
    with pytest.raises(OSError, match="the disk"):
        bench.committer.submit([written(found.units[0], 0)])
    bench.committer.close()
    assert [kind for kind, _ in bench.told] == ["check"] and not bench.batches
