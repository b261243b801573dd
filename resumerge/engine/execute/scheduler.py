"""The engine's main loop: compute a batch of blocks, pass it to the committer, repeat."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.execute.block_writer import BlockWriter
from resumerge.engine.execute.committer import Committer, WrittenBlocks
from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.execute.passes import Passes
from resumerge.engine.execute.read_ahead import ReadAhead
from resumerge.engine.execute.uncommitted_shares import (
    most_before_commit,
    most_in_flight,
    most_tasks,
)
from resumerge.engine.execute.unit_feed import UnitFeed
from resumerge.engine.execute.work_queue import WorkQueue
from resumerge.engine.reporter import ProgressUpdate
from resumerge.errors import Interrupted

BATCH_SECONDS = 1.0
"""Seconds after which even a small batch is submitted, so that the process can stop quickly."""


class _RunningTask(NamedTuple):
    """A task in flight: the future of the blocks that it writes, and the bytes of these blocks."""

    written: Future[list[WrittenBlocks]]
    nbytes: int


class Scheduler:
    """The main loop, which computes every pending block of a plan, batch by batch.

    Args:
        execution: the context of the execution, which all parts of the loop share.
        evaluator: prepares units and computes their blocks.
        queue: chooses the next unit whose files are present and whose shard has disk space.
        committer: commits each batch in its own thread; the loop waits for the batch before.
        page_cache: drops pages of blocks that a pass has read.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        evaluator: Evaluator,
        queue: WorkQueue,
        committer: Committer,
        page_cache: PageCache,
    ) -> None:
        self._execution = execution
        self._queue, self._committer = queue, committer
        self._governor, self._stop = execution.governor, execution.stop
        self._read_ahead = ReadAhead(execution.plan, execution.reader)
        self._scratch = Scratch(execution.storage, execution.files.folder)
        self._writer = BlockWriter(execution, evaluator, self._scratch)
        self._pool = ThreadPoolExecutor(execution.threads, "block", evaluator.start_thread)
        passes = Passes(execution, self._pool, page_cache, self._read_ahead)
        self._feed = UnitFeed(execution, evaluator, queue, passes, self._read_ahead, self._scratch)
        self._running: deque[_RunningTask] = deque()
        """The tasks in flight, in the order of their blocks.

        A task stays in flight until `_oldest_written` takes its blocks, even if it ends earlier.
        """
        self._units_done = sum(unit.is_complete for unit in execution.progress)
        self._largest_block = execution.estimate.largest_block
        self._bytes_done = committer.bytes_committed
        self._bytes_total = sum(unit.nbytes for unit in execution.plan.units)

    def run(self) -> None:
        """Compute and commit until nothing is pending, or a signal asks the process to stop.

        Raises:
            Resumable: the run cannot continue now: a source cannot be read or has changed, memory
                or disk space is short, or a user's method failed.
            OSError: the output cannot be written now.
            Interrupted: a signal arrived. The blocks of tasks that had started are committed. If
                the signal interrupted the reading of a source, the blocks in flight are not
                committed.
        """
        try:
            while True:
                if batch := self._next_batch():
                    self._committer.submit(batch)  # waits until the previous batch is committed
                    self._report(batch)
                else:
                    self._committer.wait()
                    if not self._queue.wait(self._report_downloads):
                        break
            self._stop.check()  # a signal, at which `UnitFeed` and the passes only returned early
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._feed.close()
            self._committer.close()

    def _next_batch(self) -> list[WrittenBlocks]:
        """Wait until memory has room for a block, then return the next batch.

        The blocks of the batch are in order; they are computed, written and hashed. The batch is
        empty if no block is ready, or a signal asks the process to stop. Usually memory has room at
        once.

        While the batch is collected, threads compute blocks beyond it. `most_in_flight` limits the
        bytes of the blocks in flight. `most_before_commit` limits the sum of these bytes and the
        batch's bytes. Neither limit applies if nothing but the previous batch is uncommitted: then
        one task may always start.

        Raises:
            Resumable: memory had no room for a block for too long, or a task failed with this
                error.
            OSError: a task failed to write.
        """
        self._governor.wait_for_memory(self._stop)
        deadline = time.monotonic() + BATCH_SECONDS
        batch: list[WrittenBlocks] = []
        collected_bytes = 0
        try:
            while not batch or time.monotonic() < deadline:
                is_full = self._start_tasks(collected_bytes)
                if not self._running or (batch and is_full):
                    break
                for blocks in self._oldest_written():
                    batch.append(blocks)
                    collected_bytes += blocks.nbytes
        except Interrupted:
            # The signal interrupted the reading of a source. The blocks in `batch` are still
            # committed. The tasks in flight end or are cancelled before `run` returns; their blocks
            # are computed again after resuming.
            self._running.clear()
        return batch

    def _start_tasks(self, collected_bytes: int) -> bool:
        """Start tasks until enough are in flight, no block is ready, or the batch is full.

        Args:
            collected_bytes: bytes of the blocks in the batch so far.

        Returns:
            True if the batch is full: no further task may start before it is submitted.
        """
        while not self._stop.requested and self._may_start_task():
            bytes_left = (
                most_before_commit(self._governor) - collected_bytes - self._bytes_in_flight
            )
            is_full = bytes_left < self._largest_block or self._governor.is_cramped
            if is_full and (collected_bytes or self._running):
                return True
            task = self._feed.next_task(bytes_left)
            if task is None:
                break
            future = self._pool.submit(self._writer.write, task)
            self._running.append(_RunningTask(future, task.nbytes))
        return False

    def _may_start_task(self) -> bool:
        """Return whether the number and the bytes of the tasks in flight allow another task.

        Up to `most_tasks` + 1 tasks may be in flight, because a task that has ended counts until
        its blocks are taken.
        """
        if not self._running:
            return True
        has_free_place = len(self._running) <= most_tasks(self._execution)
        return has_free_place and self._bytes_in_flight < most_in_flight(self._governor)

    @property
    def _bytes_in_flight(self) -> int:
        return sum(task.nbytes for task in self._running)

    def _oldest_written(self) -> Iterator[WrittenBlocks]:
        """Wait for the older half of the tasks in flight, and yield the blocks that they wrote.

        This thread wakes only once for all of these tasks. Each time that it wakes, it takes the
        interpreter's lock away from the threads that compute.
        """
        task_count = -(-len(self._running) // 2)
        self._running[task_count - 1].written.exception()  # waits until this task has ended
        for _ in range(task_count):
            for blocks in self._running.popleft().written.result():
                if blocks.completes_unit:
                    self._read_ahead.end(blocks.unit)
                yield blocks

    def _report(self, batch: list[WrittenBlocks]) -> None:
        """Count the blocks of a batch as done, committed or not, and report the progress."""
        self._units_done += sum(blocks.completes_unit for blocks in batch)
        self._bytes_done += sum(blocks.nbytes for blocks in batch)
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
        self._execution.reporter.heartbeat()  # a stalled download has its own timeout
        if progress := self._queue.download_progress:
            self._execution.reporter.fetching(progress)
