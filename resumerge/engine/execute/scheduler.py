"""The engine's main loop: compute a batch of blocks, hand it to be committed, take the next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from resumerge.engine.execute.checksums import hash_block
from resumerge.engine.execute.committer import Committer, WrittenBlock
from resumerge.engine.execute.disk_quota import DiskQuota
from resumerge.engine.execute.evaluator import Evaluator
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.execute.reporter import ProgressUpdate, Reporter
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.execute.work_queue import WorkQueue
from resumerge.engine.resources.governor import Governor
from resumerge.engine.resources.signals import StopRequest
from resumerge.kernels.blocks import MapFunction, Scan
from resumerge.ledger import Progress
from resumerge.planning.plan import BLOCK, Plan, Unit
from resumerge.sources.hub.prefetch import Prefetcher
from resumerge.storage import Storage

_Begun = tuple[Unit, "Future[Any] | None"]
"""A unit, and its statistics if its blocks need any that are computed before."""

TOGETHER = 4
"""Blocks that a thread computes one after the other: each time that threads hand over costs as much
as a tenth of a block."""

BATCH_SECONDS = 1.0
"""A batch is closed after this time even if it is small, so that stopping is quick."""


class Scheduler:
    """Computes every pending block of a plan."""

    def __init__(
        self,
        plan: Plan,
        progress: list[Progress],
        evaluator: Evaluator,
        files: ShardFiles,
        storage: Storage,
        committer: Committer,
        governor: Governor,
        cache: PageCache,
        stop: StopRequest,
        threads: int,
        prefetcher: Prefetcher,
        reporter: Reporter,
        room: DiskQuota,
    ) -> None:
        self._plan, self._progress, self._evaluator = plan, progress, evaluator
        self._files, self._storage, self._committer = files, storage, committer
        self._governor, self._cache = governor, cache
        self._stop, self._reporter = stop, reporter
        self._threads, self._prefetcher = threads, prefetcher
        self._pool = ThreadPoolExecutor(threads, "block", evaluator.start_thread)
        self._ahead = ThreadPoolExecutor(1, "statistics")
        self._coming: _Begun | None = None
        unfinished = [unit for unit, known in zip(plan.units, progress) if known.checksum is None]
        self._pending = WorkQueue(plan, unfinished, prefetcher, room)
        self._current: tuple[Unit, Any]
        self._indices = range(0)
        self._units_done = sum(known.checksum is not None for known in progress)
        self._largest_block = max([1, *(unit.block_bytes(0)[1] for unit in plan.units)])

    def run(self) -> None:
        """Go on until everything is committed, or a signal asks to stop.

        Raises:
            Resumable: a source cannot be brought or read now.
            OSError: the output cannot be written now.
            Interrupted: a signal came; what was computed is committed.
        """
        try:
            while (batch := self._compute()) or self._files_arrive():
                if batch:
                    self._committer.submit(batch)
                    self._tell(batch)
            self._committer.wait()
            self._stop.check()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._ahead.shutdown(wait=True, cancel_futures=True)
            self._committer.close()

    def _files_arrive(self) -> bool:
        """Wait for another unit's files, and room; False where none is left, or on a stop."""
        self._committer.wait()
        return self._pending.wait(self._stop, self._tell_of_downloads)

    def _compute(self) -> list[WrittenBlock]:
        """One batch: its blocks computed, written and hashed, in order; empty if none can be now.

        At most half the batch size (or one block), since the batch before is still being
        committed meanwhile, and a kill costs both.
        """
        self._governor.wait_for_room(self._stop)
        deadline = time.monotonic() + BATCH_SECONDS
        running: deque[Future[list[WrittenBlock]]] = deque()
        batch: list[WrittenBlock] = []
        nbytes = 0
        try:
            while time.monotonic() < deadline:
                left = self._governor.batch_bytes // 2 - nbytes
                full = nbytes > 0 and (left < self._largest_block or self._governor.cramped)
                item = None if self._stop.requested or full else self._next(left)
                if item is None:
                    break
                unit, indices, statistics = item
                running.append(self._pool.submit(self._write_blocks, unit, indices, statistics))
                nbytes += sum(unit.block_bytes(index)[1] for index in indices)
                if len(running) > self._in_flight():
                    batch += running.popleft().result()
            while running:
                batch += running.popleft().result()
        finally:
            for future in running:
                future.cancel()
        return batch

    def _next(self, room: int) -> tuple[Unit, list[int], Any] | None:
        """The next blocks of a unit whose files are here, with its statistics.

        Args:
            room: bytes that they may have; one block is given in any case.
        """
        while not self._stop.requested:
            if self._indices:
                unit, statistics = self._current
                taken = min(self._together(), max(1, room // self._largest_block))
                indices, self._indices = self._indices[:taken], self._indices[taken:]
                return unit, list(indices), statistics
            begun = self._coming or self._begin()
            if begun is None:
                break
            self._coming = self._begin()
            self._enter(*begun)
        return None

    def _begin(self) -> _Begun | None:
        """Take the next unit, and begin its statistics.

        That is one unit ahead of its blocks, so that no thread waits for the end of a scan.
        """
        unit = self._pending.take()
        if unit is None:
            return None
        if unit.blocks == 1 or not self._evaluator.needs_statistics(unit):
            return unit, None
        return unit, self._ahead.submit(self._evaluator.statistics, unit, self._scanner(unit))

    def _enter(self, unit: Unit, coming: Future[Any] | None) -> None:
        """Every block of a unit that is not committed is next."""
        try:
            self._current = unit, coming.result() if coming else None
        except _Stopped:
            return
        self._indices = range(self._progress[unit.index].committed_blocks, unit.blocks)

    def _write_blocks(self, unit: Unit, indices: list[int], statistics: Any) -> list[WrittenBlock]:
        """Runs in a worker thread."""
        if unit.blocks == 1 and self._evaluator.needs_statistics(unit):
            statistics = self._evaluator.statistics(
                unit,
                lambda function, sample=False: self._evaluator.serial_scan(unit, function, sample),
            )
        return [self._write_block(unit, index, statistics) for index in indices]

    def _write_block(self, unit: Unit, index: int, statistics: Any) -> WrittenBlock:
        started = time.perf_counter()
        data = self._evaluator.block(unit, index, statistics)
        target = self._files.descriptor(unit.shard)
        offset, nbytes = unit.block_bytes(index)
        origin = self._evaluator.copied_from(unit, index)
        if origin is None or not self._storage.copy(*origin, target, offset, nbytes):
            self._storage.write(target, data, offset)
        self._reporter.heartbeat()
        return WrittenBlock(unit, index, hash_block(data), time.perf_counter() - started)

    def _scanner(self, unit: Unit) -> Scan[Any]:
        """A scan over a unit's blocks by all threads, a few blocks ahead of who consumes it."""

        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            running: deque[Future[list[Any]]] = deque()
            first = done = 0
            while first < unit.blocks:
                self._governor.wait_for_room(self._stop)
                if self._stop.requested:
                    raise _Stopped
                last = min(first + self._together(), unit.blocks)
                running.append(self._pool.submit(self._parts, unit, first, last, function, sample))
                first = last
                if len(running) > self._in_flight():
                    found = running.popleft().result()
                    done += len(found)
                    yield from found
                self._cache.scanned(unit, done - 1)
                self._reporter.heartbeat()
            while running:
                yield from running.popleft().result()

        return scan

    def _parts(
        self, unit: Unit, first: int, last: int, function: MapFunction[Any], sample: bool
    ) -> list[Any]:
        """Runs in a worker thread."""
        return [
            self._evaluator.map_block(unit, index, function, sample) for index in range(first, last)
        ]

    def _in_flight(self) -> int:
        """Tasks that wait or run: enough that no thread idles, fewer under pressure."""
        fits = self._governor.batch_bytes // (2 * 4 * BLOCK)
        return max(1, min(2 * self._threads, fits))

    def _together(self) -> int:
        """Blocks of a task; fewer under pressure."""
        return max(1, min(TOGETHER, self._governor.batch_bytes // (32 * 4 * BLOCK)))

    def _tell(self, batch: list[WrittenBlock]) -> None:
        self._units_done += sum(w.index == w.unit.blocks - 1 for w in batch)
        self._tell_of_downloads()
        self._reporter.progressed(
            ProgressUpdate(
                self._committer.bytes_committed
                + sum(w.unit.block_bytes(w.index)[1] for w in batch),
                sum(unit.nbytes for unit in self._plan.units),
                self._units_done,
                len(self._plan.units),
                batch[-1].unit.name,
            )
        )

    def _tell_of_downloads(self) -> None:
        self._reporter.heartbeat()  # a download that stands still ends by itself
        if progress := self._prefetcher.progress:
            self._reporter.fetching(progress)


class _Stopped(Exception):
    """A scan ends early because the run does."""
