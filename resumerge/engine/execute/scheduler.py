"""The engine's main loop: compute a batch of blocks, hand it to the committer, take the next."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np

from resumerge.engine.evaluation.evaluator import Evaluator, Statistics
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.execute.committer import Committer, WrittenBlocks
from resumerge.engine.execute.execution import Execution
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.execute.read_ahead import ReadAhead
from resumerge.engine.execute.work_queue import WorkQueue
from resumerge.engine.reporter import ProgressUpdate
from resumerge.errors import Interrupted
from resumerge.kernels.hashes import hash_blocks
from resumerge.planning.estimates.memory import reduction_bytes
from resumerge.planning.plan import Unit
from resumerge.tensors import Merged, Spilled
from resumerge.tensors.target import BLOCK, RUN_BYTES

StartedUnit = tuple[Unit, "Future[Statistics] | None"]
"""A unit, and the future of its statistics if they are computed ahead of its blocks."""

BATCH_SECONDS = 1.0
"""A batch is closed after this time even if it is small, so that the process stops quickly."""

RUNS_OF_A_BATCH = 32
"""The least runs of blocks in a batch, so that all threads have work in it."""

UNITS_AHEAD = 2
"""The number of units that are begun before the blocks of another one are done. One thread puts
together what the scans of a unit find, while the others scan the next. Each of these threads
keeps memory of its own; three save 4 % of the time of TIES, and take 5 % more memory."""

SAMPLE_RUNS = 2
"""How many times the blocks of a computing task a sampling one takes: less is read of each."""


class Scheduler:
    """The main loop: it computes every pending block of a plan, batch by batch."""

    def __init__(
        self,
        execution: Execution,
        evaluator: Evaluator,
        queue: WorkQueue,
        committer: Committer,
        page_cache: PageCache,
    ) -> None:
        self._execution, self._evaluator = execution, evaluator
        self._queue, self._committer, self._page_cache = queue, committer, page_cache
        self._governor, self._stop = execution.governor, execution.stop
        self._read_ahead = ReadAhead(execution.plan, execution.reader)
        self._scratch = Scratch(execution.storage, execution.files.folder)
        self._pool = ThreadPoolExecutor(execution.threads, "block", evaluator.start_thread)
        self._statistics_pool = ThreadPoolExecutor(UNITS_AHEAD, "statistics")
        self._running: deque[tuple[Future[WrittenBlocks], int]] = deque()
        """The tasks that compute, in order, and the bytes that each writes."""
        self._taken: Unit | None = None
        """The unit that was taken from the queue and is not begun."""
        self._upcoming: deque[StartedUnit] = deque()
        self._one_scan = threading.Lock()
        self._reductions_limit = execution.estimate.memory.reductions
        self._current: tuple[Unit, Statistics]
        self._blocks_left = range(0)
        self._units_done = sum(known.checksum is not None for known in execution.progress)
        self._spills = execution.estimate.scratch > 0
        self._largest_block = execution.estimate.largest_block
        self._bytes_done = committer.bytes_committed
        self._bytes_total = sum(unit.nbytes for unit in execution.plan.units)

    def run(self) -> None:
        """Compute and commit until nothing is pending, or a signal asks the process to stop.

        Raises:
            Resumable: a source cannot be downloaded or read now.
            OSError: the output cannot be written now.
            Interrupted: a signal arrived; every computed block is committed.
        """
        try:
            while True:
                if batch := self._next_batch():
                    self._committer.submit(batch)  # waits until the batch before is committed
                    self._report(batch)
                else:
                    self._committer.wait()
                    if not self._queue.wait(self._report_downloads):
                        break
            self._stop.check()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._statistics_pool.shutdown(wait=True, cancel_futures=True)
            self._committer.close()

    def _next_batch(self) -> list[WrittenBlocks]:
        """Return the next blocks in order, computed, written and hashed; empty if none can be now.

        Threads go on with the blocks after them. These are at most a quarter of the batch size,
        and together with the batch at most half of it, or one task: the batch before is still
        being committed, and a kill costs all of them.
        """
        self._governor.wait_for_memory(self._stop)
        deadline = time.monotonic() + BATCH_SECONDS
        batch: list[WrittenBlocks] = []
        nbytes = 0
        try:
            while not batch or time.monotonic() < deadline:
                is_full = self._start_tasks(nbytes)
                if not self._running or (batch and is_full):
                    break
                for written in self._written():
                    batch.append(written)
                    nbytes += written.nbytes
        except Interrupted:
            self._running.clear()  # a server does not answer; what was computed is committed
        return batch

    def _start_tasks(self, nbytes: int) -> bool:
        """Keep all threads busy.

        Args:
            nbytes: bytes of the batch so far.

        Returns:
            whether there is no room for another task before the batch is committed.
        """
        while not self._stop.requested and self._has_idle_threads():
            left = self._governor.batch_bytes // 2 - nbytes - self._bytes_in_flight
            is_full = left < self._largest_block or self._governor.cramped
            if is_full and (nbytes or self._running):
                return True
            task = self._next_blocks(left)
            if task is None:
                break
            size = task[0].span(task[1])[1]
            self._running.append((self._pool.submit(self._write_blocks, *task), size))
        return False

    def _has_idle_threads(self) -> bool:
        """Return whether a thread has no task, or will have none soon."""
        if not self._running:
            return True
        few = len(self._running) <= self._most_tasks()
        return few and self._bytes_in_flight < self._governor.batch_bytes // 4

    @property
    def _bytes_in_flight(self) -> int:
        return sum(size for _, size in self._running)

    def _written(self) -> Iterator[WrittenBlocks]:
        """Yield the blocks that are next in order, half of those in flight, once written.

        This thread wakes once for all of them: each time it takes the interpreter's lock from the
        threads that compute.
        """
        count = -(-len(self._running) // 2)
        self._running[count - 1][0].exception()  # waits for it
        for _ in range(count):
            written = self._running.popleft()[0].result()
            if written.completes_unit:
                self._read_ahead.end(written.unit)
            yield written

    def _next_blocks(self, nbytes: int) -> tuple[Unit, range, Statistics] | None:
        """Return the next blocks of a unit whose files are present, and the unit's statistics.

        Args:
            nbytes: largest size of the blocks; at least one block is returned in any case.
        """
        while not self._stop.requested:
            if self._blocks_left:
                unit, statistics = self._current
                fitting = max(1, nbytes // self._largest_block)
                count = min(unit.run_blocks(self._run_bytes()), fitting)
                indices, self._blocks_left = self._blocks_left[:count], self._blocks_left[count:]
                return unit, indices, statistics
            self._start_units()
            if not self._upcoming:
                break
            self._enter(*self._upcoming.popleft())
        return None

    def _start_units(self) -> None:
        """Take the next units from the queue, and start to compute their statistics.

        That is done ahead of their blocks, so that no thread waits for the end of a scan.
        """
        while len(self._upcoming) <= self._units_ahead:
            self._taken = self._taken or self._queue.take()
            if self._taken is None or not self._has_room(self._taken):
                break
            self._upcoming.append(self._start(self._taken))
            self._taken = None

    @property
    def _units_ahead(self) -> int:
        return 1 if self._scans_are_costly else UNITS_AHEAD

    @property
    def _scans_are_costly(self) -> bool:
        """Whether several scans at once would cost more than memory.

        They may cost downloads, room on a disk, or pages of the page cache that are read again.
        """
        return self._read_ahead.is_needed or self._spills or self._governor.cache_is_scarce

    def _has_room(self, unit: Unit) -> bool:
        """Return whether the reductions of a unit fit beside those of the units before it."""
        units = [unit, *(started for started, _ in self._upcoming)]
        return len(units) < 3 or sum(map(reduction_bytes, units)) <= self._reductions_limit

    def _start(self, unit: Unit) -> StartedUnit:
        """Start to compute a unit's statistics, if its blocks need them."""
        if unit.blocks == 1 or not self._evaluator.needs_statistics(unit):
            self._read_ahead.begin(unit, self._first_block(unit))
            return unit, None
        return unit, self._statistics_pool.submit(self._scan, unit)

    def _scan(self, unit: Unit) -> Statistics:
        """Compute a unit's statistics, in a thread that puts together what workers find."""
        with self._one_scan if self._scans_are_costly else nullcontext():
            return self._evaluator.statistics(unit, self._pass, self._scratch)

    def _enter(self, unit: Unit, statistics: Future[Statistics] | None) -> None:
        """Make every uncommitted block of a unit the next to be computed."""
        try:
            self._current = unit, statistics.result() if statistics else {}
        except (_PassStopped, Interrupted):
            return  # the unit stays pending, and `run` raises for the signal
        first = self._first_block(unit)
        self._blocks_left = range(first, unit.blocks)
        if statistics is not None:
            self._read_ahead.begin(unit, first)

    def _first_block(self, unit: Unit) -> int:
        """Return the first block of a unit that is not committed."""
        return self._execution.progress[unit.index].committed_blocks

    def _write_blocks(self, unit: Unit, indices: range, statistics: Statistics) -> WrittenBlocks:
        """Compute and write blocks, in a worker thread, and return them."""
        if unit.blocks == 1 and self._evaluator.needs_statistics(unit):
            statistics = self._evaluator.statistics(unit, scratch=self._scratch)
        started = time.perf_counter()
        measurements: list[np.ndarray] | None = [] if self._execution.measures else None
        if unit.is_copied:
            parts = [self._write(unit, range(n, n + 1), statistics) for n in indices]
            hashes, inputs = map(b"".join, zip(*parts))
        else:
            hashes, inputs = self._write(unit, indices, statistics, measurements)
        self._execution.reporter.heartbeat()
        seconds = time.perf_counter() - started
        return WrittenBlocks(
            unit, indices, unit.span(indices)[1], hashes, inputs, seconds, measurements
        )

    def _write(
        self,
        unit: Unit,
        indices: range,
        statistics: Statistics,
        measurements: list[np.ndarray] | None = None,
    ) -> tuple[bytes, bytes]:
        """Compute blocks and write them together; return their hashes and those of their inputs."""
        data, inputs = self._evaluator.compute(unit, indices, statistics, measurements)
        hashes = hash_blocks(data, unit.block_bytes(indices[0])[1])
        files = self._execution.files
        if not files.is_cloned(unit.shard):
            self._execution.storage.write(files.descriptor(unit.shard), data, unit.span(indices)[0])
        return hashes, inputs

    def _pass(
        self, tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
    ) -> Iterator[Any]:
        """Yield the results of a pass by all threads, a few runs ahead of the consumer."""
        with self._read_ahead.expect_pass(tensor, sample=sample):
            yield from self._gone_over(tensor, function, sample)

    def _gone_over(
        self, tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
    ) -> Iterator[Any]:
        running: deque[tuple[range, Future[Any]]] = deque()
        first = 0
        while first < tensor.blocks:
            self._governor.wait_for_memory(self._stop)
            if self._stop.requested:
                raise _PassStopped
            count = tensor.run_blocks(tensor.block_elements, self._run_bytes())
            count *= SAMPLE_RUNS if sample else 1
            indices = range(first, min(first + count, tensor.blocks))
            running.append((indices, self._pool.submit(function, indices)))
            first = indices.stop
            if len(running) > self._most_tasks():
                done, result = running.popleft()
                yield result.result()
                self._page_cache.passed_over(tensor, done)
            self._execution.reporter.heartbeat()
        while running:
            yield running.popleft()[1].result()

    def _most_tasks(self) -> int:
        """Return how many tasks may wait or run: enough for every thread, fewer under pressure."""
        fits = self._governor.batch_bytes // (2 * 4 * BLOCK)
        return max(1, min(2 * self._execution.threads, fits))

    def _run_bytes(self) -> int:
        """Return the bytes of an operand in a run of blocks: less under memory pressure."""
        return min(RUN_BYTES, self._governor.batch_bytes // RUNS_OF_A_BATCH)

    def _report(self, batch: list[WrittenBlocks]) -> None:
        """Count what was written, which the committer may have committed by now, or not."""
        self._units_done += sum(written.completes_unit for written in batch)
        self._bytes_done += sum(written.nbytes for written in batch)
        self._report_downloads()
        self._execution.reporter.progressed(
            ProgressUpdate(
                self._bytes_done,
                self._bytes_total,
                self._units_done,
                len(self._execution.plan.units),
                batch[-1].unit.name,
            )
        )

    def _report_downloads(self) -> None:
        self._execution.reporter.heartbeat()  # a stalled download ends by its own timeout
        if progress := self._queue.download_progress:
            self._execution.reporter.fetching(progress)


class _PassStopped(BaseException):
    """A signal to end a pass early: the process was asked to stop. No method may catch it."""
