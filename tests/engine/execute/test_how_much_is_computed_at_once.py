"""Promise: what is computed and not yet committed is bounded, ordered, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from made_up_plans import LINEAR, plan, vectors

from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.execute import scheduler as module
from resumerge.engine.execute.committer import WrittenBlocks
from resumerge.engine.execute.scheduler import BATCH_SECONDS, SAMPLE_RUNS, Scheduler
from resumerge.engine.shards.checksums import hash_block
from resumerge.errors import Interrupted
from resumerge.ledger import Progress
from resumerge.planning import Plan, estimate
from resumerge.planning.plan import Unit
from resumerge.tensors import Merged

BLOCK = 4
SIZE = 4 * BLOCK
"""Bytes of a block."""

RUN_BLOCKS = 4
"""Blocks of a run."""

PENDING = Progress(0, b"", b"", None, None, None)
PLENTY = 1000 * SIZE


class Lazy:
    """A future whose work is done when its result is asked for."""

    def __init__(self, pool: Pool, work: Callable[[], Any]) -> None:
        self._pool, self._work = pool, work

    def result(self) -> Any:
        self._pool.running -= 1
        if self._pool.name == "statistics":
            self._pool.order.append(("waiting for", "statistics"))
        return self._work()

    def exception(self) -> None:
        """Wait for it."""


class Pool:
    """A pool of threads without threads, which knows how many tasks it had at most.

    Args:
        order: the name of the pool and of the unit for each task of any of them but the parts of
            scans, and the waits.
    """

    order: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, threads: int, name: str, initializer: Any = None) -> None:
        self.name, self.running, self.most = name, 0, 0
        self.submitted: list[Lazy] = []
        self.tasks: list[tuple[Unit, range]] = []
        self.is_shut_down = False

    def submit(self, work: Callable[..., Any], *words: Any) -> Lazy:
        if isinstance(words[0], Unit):
            self.order.append((self.name, words[0].name))
            self.tasks += [words[:2]] if self.name == "block" else []
        self.running += 1
        self.most = max(self.most, self.running)
        self.submitted.append(Lazy(self, lambda: work(*words)))
        return self.submitted[-1]

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        self.is_shut_down = wait and cancel_futures


class Bench:
    """A scheduler whose every neighbour notes what it is told.

    Args:
        batch_bytes, cramped: what the governor says.
        committed: blocks of each unit that are committed already.
        scanned: names of the units that need statistics.
    """

    def __init__(
        self,
        found: Plan,
        *,
        threads: int = 1,
        batch_bytes: int = PLENTY,
        cramped: bool = False,
        committed: tuple[int, ...] = (),
        scanned: tuple[str, ...] = (),
    ) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.batches: list[list[tuple[int, int]]] = []
        self.in_flight: list[int] = []
        """Tasks that are not done when a batch is submitted."""
        self.uncommitted: list[int] = []
        """Blocks that are computed then, or in flight."""
        self.written: list[Any] = []
        self.stop = SimpleNamespace(requested=False, check=self._check)
        self.now = 0.0
        self.at_block: dict[tuple[int, int], Callable[[], None]] = {}
        self.left = [*found.units]
        tell = lambda *words: lambda *more: self.told.append((*words, *more))  # noqa: E731
        self.governor = SimpleNamespace(
            batch_bytes=batch_bytes, cramped=cramped, wait_for_memory=self._wait_for_memory,
            cache_is_scarce=False,
        )  # fmt: skip
        progress = [
            Progress(count, b"", b"", None, None, None)
            for count in committed + (0,) * (len(found.units) - len(committed))
        ]
        self.updates: list[Any] = []
        execution: Any = SimpleNamespace(
            plan=found, estimate=estimate(found), reader=None, progress=progress,
            governor=self.governor, stop=self.stop,
            threads=threads,
            files=SimpleNamespace(descriptor=lambda shard: f"shard {shard}", folder=None),
            storage=SimpleNamespace(write=tell("write")),
            reporter=SimpleNamespace(
                heartbeat=tell("heartbeat"), progressed=self.updates.append,
                fetching=tell("fetching"),
            ),
        )  # fmt: skip
        self.samples = False
        evaluator: Any = SimpleNamespace(
            start_thread=None, needs_statistics=lambda unit: unit.name in scanned,
            statistics=self._statistics, compute=self._compute,
        )  # fmt: skip
        queue: Any = SimpleNamespace(
            take=lambda: self.left.pop(0) if self.left else None,
            wait=self._wait, download_progress=None,
        )  # fmt: skip
        committer: Any = SimpleNamespace(
            bytes_committed=sum(committed) * SIZE, submit=self._submit,
            wait=tell("committed"), close=tell("closed"),
        )  # fmt: skip
        cache: Any = SimpleNamespace(swept=self._swept)
        self.mapped: set[tuple[str, int]] = set()
        self.computed: list[tuple[int, int, Any]] = []
        self.scheduler = Scheduler(execution, evaluator, queue, committer, cache)
        self.pool: Any = self.scheduler._pool
        self.statistics_pool: Any = self.scheduler._statistics_pool

    def _check(self) -> None:
        if self.stop.requested:
            raise Interrupted(15)

    def _wait_for_memory(self, stop: Any) -> None:
        assert stop is self.stop
        self.told.append(("memory",))

    def _compute(self, unit: Unit, indices: range, statistics: Any) -> tuple[memoryview, bytes]:
        for index in indices:
            self.computed.append((unit.index, index, statistics))
            self.at_block.get((unit.index, index), lambda: None)()
        data = b"".join(bytes([index]) * unit.block_bytes(index)[1] for index in indices)
        return memoryview(data), b"inputs" * len(indices)

    def _swept(self, merged: Merged, indices: range) -> None:
        read = {(merged.name, index) for index in indices}
        assert read <= self.mapped, "what was not read yet is not dropped"
        self.told.append(("swept", merged.name, indices))

    def _statistics(
        self, unit: Unit, sweep: Any = None, scratch: Scratch | None = None
    ) -> list[Any] | str:
        assert scratch is self.scheduler._scratch
        if sweep is None:
            return f"serial {unit.name}"
        self.told.append(("sweep over", unit.name))

        def read(indices: range) -> list[Any]:
            self.mapped.update((unit.name, index) for index in indices)
            return [(index, self.samples) for index in indices]

        return [*chain.from_iterable(sweep(unit.expression, read, self.samples))]

    def _submit(self, batch: Any) -> None:
        self.told.append(("submit",))
        self.in_flight.append(self.pool.running)
        taken = {(unit.index, k) for unit, indices in self.pool.tasks for k in indices}
        before = sum(map(len, self.batches))
        self.uncommitted.append(len(taken) - before)
        self.written.append(batch)
        self.batches.append([(written.unit.index, k) for written in batch for k in written.indices])

    def _wait(self, report: Callable[[], None]) -> bool:
        self.told.append(("wait",))
        return False

    def run(self) -> list[int]:
        """The blocks of each batch."""
        self.scheduler.run()
        assert self.pool.is_shut_down and self.statistics_pool.is_shut_down
        return [len(batch) for batch in self.batches]

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [told for told in self.told if told[0] in kinds]


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(Pool, "order", [])
    for place in ("resumerge.tensors.target.BLOCK", "resumerge.engine.execute.scheduler.BLOCK"):
        monkeypatch.setattr(place, BLOCK)
    monkeypatch.setattr(module, "RUN_BYTES", RUN_BLOCKS * SIZE)


def linear(*blocks: int) -> Plan:
    """Tensors of so many blocks."""
    sizes = [BLOCK * count for count in blocks]
    found = plan(LINEAR, vectors("a", *sizes), vectors("b", *sizes))
    assert [unit.blocks for unit in found.units] == [*blocks]
    return found


# The size of a batch


@pytest.mark.parametrize(
    ("batch_blocks", "expected"),
    [
        (2, [1] * 10),
        (3, [1] * 10),
        (4, [2] * 5),
        (7, [2] * 5),
        (8, [3, 3, 3, 1]),
        (20, [8, 2]),
        (1, [1] * 10),
    ],
)
def test_a_batch_is_what_is_not_in_flight_of_half_of_what_may_be_uncommitted(
    batch_blocks: int, expected: list[int]
) -> None:
    """The other half is being committed."""
    bench = Bench(linear(3, 7), batch_bytes=batch_blocks * SIZE)
    assert bench.run() == expected
    every = [(0, k) for k in range(3)] + [(1, k) for k in range(7)]
    assert [block for batch in bench.batches for block in batch] == every
    assert max(bench.uncommitted) <= max(1, batch_blocks // 2)


def test_it_is_no_larger_where_threads_take_several_blocks_at_once() -> None:
    bench = Bench(linear(200), batch_bytes=2 * 67 * SIZE + SIZE)
    assert bench.run() == [64, 63, 64, 9]
    assert {len(task.indices) for task in of_each_task(bench)} == {RUN_BLOCKS, 3, 2}
    assert max(bench.uncommitted) == 67


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_go_on_while_a_batch_is_committed(threads: int) -> None:
    bench = Bench(linear(30, 30, 30), threads=threads, batch_bytes=64 * SIZE)
    bench.run()
    assert len(bench.in_flight) > 3
    assert all(count >= threads for count in bench.in_flight[:-1])


def test_a_batch_is_as_small_as_its_largest_block_allows() -> None:
    """Though the blocks that it holds are smaller: the next one may be the largest."""
    sizes = (1, 1, 1, 1, BLOCK)
    found = plan(LINEAR, vectors("a", *sizes), vectors("b", *sizes))
    assert Bench(found, batch_bytes=2 * (SIZE + 8)).run() == [2, 3]


def test_no_thread_takes_several_blocks_under_pressure() -> None:
    for blocks, expected in ((31, 1), (32, 1), (63, 1), (64, 2), (96, 3), (128, 4), (640, 4)):
        bench = Bench(linear(24), batch_bytes=blocks * SIZE)
        bench.run()
        assert max(len(task.indices) for task in of_each_task(bench)) == expected, blocks


def of_each_task(bench: Bench) -> list[WrittenBlocks]:
    """The blocks of the tasks, by the work that was done again for each."""
    return [lazy.result() for lazy in bench.pool.submitted]


def test_where_memory_is_away_a_batch_is_one_task() -> None:
    assert Bench(linear(5), cramped=True, batch_bytes=20 * SIZE).run() == [1] * 5


def test_a_batch_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(linear(12), batch_bytes=31 * SIZE)

    def work() -> None:
        bench.now += 0.3 * BATCH_SECONDS

    bench.at_block = {(0, index): work for index in range(12)}
    clock = SimpleNamespace(monotonic=lambda: bench.now, perf_counter=lambda: bench.now)
    monkeypatch.setattr(module, "time", clock)
    sizes = bench.run()
    assert len(sizes) > 1 and sum(sizes) == 12
    assert max(sizes) <= 4 + 3, "those of its time, and those that had begun"


def test_each_batch_waits_for_memory_first() -> None:
    bench = Bench(linear(4), batch_bytes=4 * SIZE)
    bench.run()
    assert [kind for kind, *_ in bench.of("memory", "submit")] == ["memory", "submit"] * 2 + [
        "memory"
    ]


# The tasks in flight


@pytest.mark.parametrize(
    ("threads", "batch_blocks", "most"),
    [(1, 1000, 2), (3, 1000, 6), (3, 12, 6), (3, 11, 5), (3, 2, 1), (3, 1, 1), (8, 20, 10)],
)
@pytest.mark.parametrize("scanned", [(), ("t0",)], ids=["blocks", "a scan"])
def test_few_tasks_wait_and_fewer_under_pressure(
    threads: int, batch_blocks: int, most: int, scanned: tuple[str, ...]
) -> None:
    sizes = (BLOCK * 100,)
    small = plan(LINEAR + "out_dtype: bfloat16\n", vectors("a", *sizes), vectors("b", *sizes))
    batch_bytes = batch_blocks * SIZE
    bench = Bench(small, threads=threads, batch_bytes=batch_bytes, scanned=scanned)
    bench.run()
    assert bench.pool.most in (most, most + 1), "and the one whose result is waited for"


def test_blocks_are_committed_in_their_order() -> None:
    bench = Bench(linear(30, 30), threads=4)
    bench.run()
    blocks = [block for batch in bench.batches for block in batch]
    assert blocks == sorted(blocks) and len(blocks) == 60


def test_what_is_committed_already_is_not_computed_again() -> None:
    bench = Bench(linear(3, 4), committed=(2,))
    bench.run()
    assert [block for batch in bench.batches for block in batch] == [
        (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)
    ]  # fmt: skip
    assert (bench.updates[-1].bytes_done, bench.updates[-1].bytes_total) == (7 * SIZE, 7 * SIZE)
    assert (bench.updates[-1].units_done, bench.updates[-1].units_total) == (2, 2)


# Its end


def test_a_signal_lets_running_blocks_end_and_begins_no_others() -> None:
    bench = Bench(linear(10, 10), batch_bytes=10 * SIZE)
    bench.at_block[0, 1] = lambda: setattr(bench.stop, "requested", True)
    with pytest.raises(Interrupted):
        bench.scheduler.run()
    committed = [block for batch in bench.batches for block in batch]
    assert committed == [block[:2] for block in bench.computed], "all of them are committed"
    assert 2 <= len(committed) <= 4
    assert bench.told[-1] == ("closed",)


def test_a_block_that_fails_ends_the_run_and_the_tasks_that_wait() -> None:
    bench = Bench(linear(10), threads=2)

    def fail() -> None:
        raise OSError("a source")

    bench.at_block[0, 0] = fail
    with pytest.raises(OSError, match="a source"):
        bench.scheduler.run()
    assert bench.batches == [] and bench.told[-1] == ("closed",)
    assert bench.pool.is_shut_down and bench.statistics_pool.is_shut_down


def test_what_is_computed_is_committed_before_anything_is_waited_for() -> None:
    """It may free the space, or the file, that is waited for."""
    bench = Bench(linear(2))
    bench.run()
    assert [kind for kind, *_ in bench.of("submit", "committed", "wait", "closed")] == [
        "submit", "committed", "wait", "closed"
    ]  # fmt: skip


# What a block is written with


def test_copied_blocks_are_written_one_by_one_and_computed_ones_together() -> None:
    """Of a copy each block is in the processor's cache while it is read, hashed and written."""
    blocks = [bytes([index]) * SIZE for index in range(2)]
    copy = "merge_method: passthrough\nmodels: [{model: a}]\n"
    for copied in (True, False):
        bench = Bench(plan(copy, vectors("a", 2 * BLOCK)) if copied else linear(2))
        assert bench.run() == [2]
        offset = bench.scheduler._execution.plan.units[0].offset
        single = [("write", "shard 0", data, offset + n * SIZE) for n, data in enumerate(blocks)]
        together = [("write", "shard 0", b"".join(blocks), offset)]
        assert bench.of("write") == (single if copied else together)
        [[written]] = bench.written
        assert written.hashes == b"".join(map(hash_block, blocks))
        assert written.inputs == 2 * b"inputs"


def test_each_unit_has_its_own_statistics_and_a_small_one_makes_them_itself() -> None:
    bench = Bench(linear(2, 1, 3, 1), scanned=("t0", "t1", "t2"))
    bench.run()
    found = {unit: statistics for unit, _, statistics in bench.computed}
    assert found == {
        0: [(0, False), (1, False)],
        1: "serial t1",
        2: [(k, False) for k in range(3)],
        3: {},
    }
    assert bench.of("sweep over") == [("sweep over", "t0"), ("sweep over", "t2")], (
        "none is made twice"
    )


def test_a_scan_waits_for_memory_drops_what_it_passed_and_ends_with_the_run() -> None:
    found = linear(40)
    bench = Bench(found, scanned=("t0",))
    bench.run()
    scan = bench.told[bench.told.index(("sweep over", "t0")) : bench.told.index(("submit",))]
    passed = [index for kind, *more in scan if kind == "swept" for index in more[1]]
    assert 0 < max(passed) < 40 and passed == [*range(len(passed))]
    assert len([kind for kind, *_ in scan if kind == "memory"]) == 40 / RUN_BLOCKS
    beats = len([kind for kind, *_ in scan if kind == "heartbeat"])
    assert beats == 2 * 40 / RUN_BLOCKS, "and with each run of blocks that is written"

    stopped = Bench(found, scanned=("t0",))
    stopped.governor.wait_for_memory = lambda stop: setattr(
        stop, "requested", len(stopped.told) > 6
    )
    with pytest.raises(Interrupted):
        stopped.scheduler.run()
    assert stopped.computed == [] and stopped.batches == []
    assert len(stopped.pool.submitted) < 40 / RUN_BLOCKS


def test_a_task_samples_more_blocks_than_it_reads_whole() -> None:
    tasks = {}
    for samples in (False, True):
        bench = Bench(linear(160), scanned=("t0",))
        bench.samples = samples
        bench.run()
        before = bench.told[: bench.told.index(("submit",))]
        tasks[samples] = before.count(("memory",))
        assert bench.computed[0][2] == [(k, samples) for k in range(160)]
    assert tasks[False] - tasks[True] == 160 // RUN_BLOCKS - 160 // RUN_BLOCKS // SAMPLE_RUNS


def test_progress_is_told_with_each_batch() -> None:
    bench = Bench(linear(2, 3), batch_bytes=4 * SIZE)
    bench.run()
    told = [(update.bytes_done, update.units_done, update.unit) for update in bench.updates]
    assert told == [(2 * SIZE, 1, "t0"), (4 * SIZE, 1, "t1"), (5 * SIZE, 2, "t1")]
    assert len(bench.of("heartbeat")) >= 5 + 3
