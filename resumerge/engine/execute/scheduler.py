"""The engine's main loop: compute a batch of blocks, hand it to the committer, take the next."""

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
"""Seconds after which a batch is closed even if it is small, so that the process stops quickly."""


class _RunningTask(NamedTuple):
    """A task in flight: the blocks that it will have written, and their bytes."""

    written: Future[list[WrittenBlocks]]
    nbytes: int


class Scheduler:
    """The main loop: it computes every pending block of a plan, batch by batch.

    Args:
        execution: the context of this attempt's execution.
        evaluator: prepares units and computes their blocks.
        queue: says which unit is next.
        committer: commits the batches.
        page_cache: is told which blocks a pass has read.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        evaluator: Evaluator,
        queue: WorkQueue,
        committer: Committer,
        page_cache: PageCache,
    ) -> None:
        self._execution, self._evaluator = execution, evaluator
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

        A task is in flight until `_oldest_written` takes its blocks, also when it has ended.
        """
        self._units_done = sum(unit.is_complete for unit in execution.progress)
        self._largest_block = execution.estimate.largest_block
        self._bytes_done = committer.bytes_committed
        self._bytes_total = sum(unit.nbytes for unit in execution.plan.units)

    def run(self) -> None:
        """Compute and commit until nothing is pending, or a signal asks the process to stop.

        Raises:
            Resumable: the run cannot go on now: a source cannot be read, or has changed; memory or
                disk space is short; or a method of the user fails.
            OSError: the output cannot be written now.
            Interrupted: a signal arrived. The blocks of tasks that had started are committed; but
                if it interrupted reading a source, those in flight are not.
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
            self._feed.close()
            self._committer.close()

    def _next_batch(self) -> list[WrittenBlocks]:
        """Wait until memory has room for a block, then return the next blocks.

        They are in order, computed, written and hashed; there are none if none is ready, or a
        signal asks to stop. Usually memory has room at once.

        Meanwhile threads compute blocks beyond the batch. `most_in_flight` bounds the bytes of
        these blocks, and `most_before_commit` their bytes together with the batch's; but where
        nothing else is uncommitted beside the previous batch, one task may always start.

        Raises:
            Resumable: memory had no room for a block for too long, or a task cannot go on.
            OSError: a task cannot write.
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
                for written in self._oldest_written():
                    batch.append(written)
                    collected_bytes += written.nbytes
        except Interrupted:
            # The signal interrupted reading a source. The blocks in `batch` are committed; those of
            # the tasks in flight, which end or are cancelled before `run` returns, are computed
            # again after resuming.
            self._running.clear()
        return batch

    def _start_tasks(self, collected_bytes: int) -> bool:
        """Start tasks until enough are in flight, none is ready, or the batch has no room for more.

        Args:
            collected_bytes: bytes of the batch so far.

        Returns:
            whether the batch is full: no further task may start before it is submitted.
        """
        while not self._stop.requested and self._may_start_task():
            room = most_before_commit(self._governor) - collected_bytes - self._bytes_in_flight
            is_full = room < self._largest_block or self._governor.cramped
            if is_full and (collected_bytes or self._running):
                return True
            task = self._feed.next_blocks(room)
            if task is None:
                break
            written = self._pool.submit(self._writer.write, task)
            self._running.append(_RunningTask(written, task.nbytes))
        return False

    def _may_start_task(self) -> bool:
        """Return whether another task may start: few are in flight, in number and in bytes.

        `most_tasks` and one may be in flight, since tasks that have ended count as well.
        """
        if not self._running:
            return True
        few = len(self._running) <= most_tasks(self._execution)
        return few and self._bytes_in_flight < most_in_flight(self._governor)

    @property
    def _bytes_in_flight(self) -> int:
        return sum(task.nbytes for task in self._running)

    def _oldest_written(self) -> Iterator[WrittenBlocks]:
        """Wait for the first half of the tasks in flight, and yield the blocks that they wrote.

        This thread wakes once for all these tasks, not once for each: whenever it wakes, it takes
        the interpreter's lock from the threads that compute.
        """
        count = -(-len(self._running) // 2)
        self._running[count - 1].written.exception()  # waits until this task has ended
        for _ in range(count):
            for written in self._running.popleft().written.result():
                if written.completes_unit:
                    self._read_ahead.end(written.unit)
                yield written

    def _report(self, batch: list[WrittenBlocks]) -> None:
        """Count the blocks of a batch, which may not be committed yet, and report the progress."""
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
