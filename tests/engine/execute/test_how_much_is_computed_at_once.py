"""Promise: uncommitted blocks are bounded and in order, and threads do not wait for commits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from made_up_plans import LINEAR, plan, vectors
from scheduler_bench import (
    BLOCK,
    RUN_BLOCKS,
    SIZE,
    Bench,
    linear,
    without_threads,
)

from resumerge.engine.execute import scheduler as module
from resumerge.engine.execute.committer import WrittenBlocks
from resumerge.engine.execute.passes import SAMPLE_RUNS
from resumerge.engine.execute.scheduler import BATCH_SECONDS
from resumerge.engine.shards.checksums import hash_block
from resumerge.errors import Interrupted
from resumerge.ledger import Progress

__all__ = [
    "without_threads",
]

PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)


# The size of a batch


@pytest.mark.parametrize(
    ("limit_blocks", "expected"),
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
    limit_blocks: int, expected: list[int]
) -> None:
    """The other half of the limit is for the batch that is being committed."""
    bench = Bench(linear(3, 7), uncommitted_limit=limit_blocks * SIZE)
    assert bench.run() == expected
    every = [(0, k) for k in range(3)] + [(1, k) for k in range(7)]
    assert [block for batch in bench.batches for block in batch] == every
    assert max(bench.uncommitted) <= max(1, limit_blocks // 2)


def test_it_is_no_larger_where_threads_take_several_blocks_at_once() -> None:
    bench = Bench(linear(200), uncommitted_limit=2 * 67 * SIZE + SIZE)
    assert bench.run() == [64, 63, 64, 9]
    assert {len(task.indices) for task in of_each_task(bench)} == {RUN_BLOCKS, 3, 2}
    assert max(bench.uncommitted) == 67


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_go_on_while_a_batch_is_committed(threads: int) -> None:
    bench = Bench(linear(30, 30, 30), threads=threads, uncommitted_limit=64 * SIZE)
    bench.run()
    assert len(bench.in_flight) > 3
    assert all(count >= threads for count in bench.in_flight[:-1])


def test_a_batch_is_as_small_as_its_largest_block_allows() -> None:
    """The next block may be the largest one, even if those of the batch are smaller."""
    sizes = (1, 1, 1, 1, BLOCK)
    found = plan(LINEAR, vectors("a", *sizes), vectors("b", *sizes))
    assert Bench(found, uncommitted_limit=2 * (SIZE + 8)).run() == [2, 3]


def test_no_thread_takes_several_blocks_under_pressure() -> None:
    for blocks, expected in ((31, 1), (32, 1), (63, 1), (64, 2), (96, 3), (128, 4), (640, 4)):
        bench = Bench(linear(24), uncommitted_limit=blocks * SIZE)
        bench.run()
        assert max(len(task.indices) for task in of_each_task(bench)) == expected, blocks


def of_each_task(bench: Bench) -> list[WrittenBlocks]:
    """Repeat the work of all tasks, and return the blocks that they wrote."""
    return [written for lazy in bench.pool.submitted for written in lazy.result()]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("units", "limit_blocks"), [(3, 200), (12, 100), (40, 100), (3, 2)])
def test_units_that_read_the_same_are_computed_together_and_each_thread_has_some(
    threads: int, units: int, limit_blocks: int
) -> None:
    bench = Bench(
        linear(*[10] * units), threads=threads, uncommitted_limit=limit_blocks * SIZE, alike=True
    )
    bench.run()
    assert sorted(pair for batch in bench.batches for pair in batch) == [
        (unit, index) for unit in range(units) for index in range(10)
    ]
    tasks = [lazy.result() for lazy in bench.pool.submitted]
    share = limit_blocks // (4 * threads)
    assert max(map(len, tasks)) == max(1, min(units, share)), "as many units as have a block"
    of_several = [sum(len(w.indices) for w in task) for task in tasks if len(task) > 1]
    assert max(of_several, default=0) <= share


def test_where_memory_is_away_a_batch_is_one_task() -> None:
    assert Bench(linear(5), cramped=True, uncommitted_limit=20 * SIZE).run() == [1] * 5


def test_a_batch_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(linear(12), uncommitted_limit=31 * SIZE)

    def work() -> None:
        bench.now += 0.3 * BATCH_SECONDS

    bench.at_block = {(0, index): work for index in range(12)}
    clock = SimpleNamespace(monotonic=lambda: bench.now, perf_counter=lambda: bench.now)
    monkeypatch.setattr(module, "time", clock)
    sizes = bench.run()
    assert len(sizes) > 1 and sum(sizes) == 12
    assert max(sizes) <= 4 + 3, "those of its time, and those that had begun"


def test_each_batch_waits_for_memory_first() -> None:
    bench = Bench(linear(4), uncommitted_limit=4 * SIZE)
    bench.run()
    assert [kind for kind, *_ in bench.of("memory", "submit")] == ["memory", "submit"] * 2 + [
        "memory"
    ]


# The tasks in flight


@pytest.mark.parametrize(
    ("threads", "limit_blocks", "most"),
    [(1, 1000, 2), (3, 1000, 6), (3, 12, 6), (3, 11, 5), (3, 2, 1), (3, 1, 1), (8, 20, 10)],
)
@pytest.mark.parametrize("scanned", [(), ("t0",)], ids=["blocks", "a scan"])
def test_few_tasks_wait_and_fewer_under_pressure(
    threads: int, limit_blocks: int, most: int, scanned: tuple[str, ...]
) -> None:
    sizes = (BLOCK * 100,)
    small = plan(LINEAR + "out_dtype: bfloat16\n", vectors("a", *sizes), vectors("b", *sizes))
    uncommitted_limit = limit_blocks * SIZE
    bench = Bench(small, threads=threads, uncommitted_limit=uncommitted_limit, scanned=scanned)
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
    bench = Bench(linear(10, 10), uncommitted_limit=10 * SIZE)
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
    assert bench.pool.is_shut_down and bench.preparation_pool.is_shut_down


def test_what_is_computed_is_committed_before_anything_is_waited_for() -> None:
    """The commit may free the space for which a shard or a download waits."""
    bench = Bench(linear(2))
    bench.run()
    assert [kind for kind, *_ in bench.of("submit", "committed", "wait", "closed")] == [
        "submit", "committed", "wait", "closed"
    ]  # fmt: skip


# What a block is written with


def test_copied_blocks_are_written_one_by_one_and_computed_ones_together() -> None:
    """A block of a copy is in the processor's cache while it is read, hashed and written."""
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
        assert written.input_hashes == 2 * b"inputs"


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
    assert bench.of("pass over") == [("pass over", "t0"), ("pass over", "t2")], "none is made twice"


def test_a_scan_waits_for_memory_drops_what_it_passed_and_ends_with_the_run() -> None:
    found = linear(40)
    bench = Bench(found, scanned=("t0",))
    bench.run()
    scan = bench.told[bench.told.index(("pass over", "t0")) : bench.told.index(("submit",))]
    passed = [index for kind, *more in scan if kind == "passed over" for index in more[1]]
    assert 0 < max(passed) < 40 and passed == [*range(len(passed))]
    assert len([kind for kind, *_ in scan if kind == "memory"]) == 40 / RUN_BLOCKS
    beats = len([kind for kind, *_ in scan if kind == "heartbeat"])
    assert beats == 2 * 40 / RUN_BLOCKS, "and with each block run that is written"

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
    bench = Bench(linear(2, 3), uncommitted_limit=4 * SIZE)
    bench.run()
    told = [(update.bytes_done, update.units_done, update.unit) for update in bench.updates]
    assert told == [(2 * SIZE, 1, "t0"), (4 * SIZE, 1, "t1"), (5 * SIZE, 2, "t1")]
    assert len(bench.of("heartbeat")) >= 5 + 3
