"""The feed of blocks to compute, and the preparation of their units ahead of time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.evaluation.tensor_evaluator import Preparation
from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.execute.passes import Passes, PassStopped
from resumerge.engine.execute.read_ahead import ReadAhead
from resumerge.engine.execute.uncommitted_shares import block_run_bytes, most_together
from resumerge.engine.execute.work_queue import WorkQueue
from resumerge.errors import Interrupted
from resumerge.planning.estimates.memory import reduction_bytes
from resumerge.planning.plan import Unit

StartedUnits = tuple[list[Unit], "Future[Preparation] | None"]
"""Units that are computed together, and the future of their preparation; None if the units are not
prepared ahead of time."""

UNITS_AHEAD = 2
"""The number of units that are prepared while blocks of an earlier unit are computed. While one
thread combines the results of one unit's scans, the other threads scan the next unit. Each
preparing thread keeps memory of its own: a third one would save 4 % of the time of TIES, and take 5
% more memory.
"""


@dataclass(frozen=True)
class BlockTask:
    """A task for one thread: the same blocks of one or more units.

    Args:
        units: one unit, or several units whose blocks read the same ranges (`have_same_reads`).
        indices: the numbers of the blocks within each unit.
        preparation: the preparation of all units together; empty for units of one block, which the
            thread prepares itself.
    """

    units: Sequence[Unit]
    indices: range
    preparation: Preparation

    @property
    def nbytes(self) -> int:
        """The bytes of the blocks of all units together."""
        return sum(unit.bytes_of(self.indices) for unit in self.units)


class UnitFeed:
    """The feed of the main loop: starts the queue's units in order, and hands out their blocks.

    Args:
        execution: the context of the execution, which all parts of the main loop share.
        evaluator: prepares the units.
        queue: chooses the next unit whose files are present and whose shard has disk space.
        passes: runs the passes that preparation needs.
        read_ahead: forecasts the ranges of the next blocks.
        scratch: creates the scratch files of spilled tensors.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        evaluator: Evaluator,
        queue: WorkQueue,
        passes: Passes,
        read_ahead: ReadAhead,
        scratch: Scratch,
    ) -> None:
        self._execution, self._evaluator, self._queue = execution, evaluator, queue
        self._passes, self._read_ahead, self._scratch = passes, read_ahead, scratch
        self._pool = ThreadPoolExecutor(UNITS_AHEAD, "preparation")
        self._one_scan = threading.Lock()
        self._taken: list[Unit] = []
        """The units that were taken from the queue but have not started.

        None between two calls, unless memory has no room for their reductions.
        """
        self._upcoming: deque[StartedUnits] = deque()
        """The units that have started, in order; none of their blocks was handed out yet."""
        self._current: tuple[list[Unit], Preparation]
        """The units whose blocks are being handed out, and their preparation."""
        self._blocks_left = range(0)
        """The numbers of the blocks of `_current` that have not been handed out."""
        self._reductions_limit = execution.estimate.memory.reductions
        self._spills = execution.estimate.scratch > 0
        self._largest_block = execution.estimate.largest_block

    def next_task(self, nbytes: int) -> BlockTask | None:
        """Return the next blocks to compute, of units whose files are present.

        Args:
            nbytes: the most bytes of all blocks together, but at least one block of each unit.

        Returns:
            None if no block can be computed now, or a signal asked the process to stop.
        """
        while not self._execution.stop.requested:
            if self._blocks_left:
                return self._take_blocks(nbytes)
            self._start_units()
            if not self._upcoming:
                break
            self._enter(*self._upcoming.popleft())
        return None

    def _take_blocks(self, nbytes: int) -> BlockTask:
        """Take the next blocks of the current units, which must have blocks left.

        Args:
            nbytes: the most bytes of all blocks together, but at least one block of each unit.
        """
        units, preparation = self._current
        block_count = self._blocks_at_once(units, nbytes)
        indices = self._blocks_left[:block_count]
        self._blocks_left = self._blocks_left[block_count:]
        return BlockTask(units, indices, preparation)

    def _blocks_at_once(self, units: Sequence[Unit], nbytes: int) -> int:
        """Return the number of blocks of each unit that one task computes, at least one.

        Args:
            units: the units of one task: one, or several that read the same ranges.
            nbytes: the most bytes of all blocks together.
        """
        byte_limit = nbytes if len(units) == 1 else min(nbytes, most_together(self._execution))
        blocks_that_fit = max(1, byte_limit // (len(units) * self._largest_block))
        most_bytes = block_run_bytes(self._execution)
        return min(blocks_that_fit, *(unit.blocks_at_once(most_bytes) for unit in units))

    def close(self) -> None:
        """Wait for the threads that prepare units, and end them."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start_units(self) -> None:
        """Take the next units from the queue, and start their preparation.

        Units are prepared ahead of their blocks, so that no thread has to wait for a scan.
        """
        while len(self._upcoming) <= self._units_ahead:
            self._taken = self._taken or self._take()
            if not self._taken or not self._has_room(self._taken[0]):
                break
            self._upcoming.append(self._start(self._taken))
            self._taken = []

    def _take(self) -> list[Unit]:
        """Return the next unit, and the units after it that read the same; empty if none is ready.

        Units that read the same are prepared together, because they have the same statistics.
        """
        unit = self._queue.take()
        units = [unit] if unit else []
        most_units = most_together(self._execution) // self._largest_block
        while unit and len(units) < most_units and (unit := self._queue.take_with_same_reads(unit)):
            units.append(unit)
        return units

    @property
    def _units_ahead(self) -> int:
        return 1 if self._scans_are_costly else UNITS_AHEAD

    @property
    def _scans_are_costly(self) -> bool:
        """Whether two scans at the same time would cost more than memory.

        They may cost downloads, disk space, or pages of the page cache that have to be read again.
        """
        is_scarce = self._execution.governor.cache_is_scarce
        return self._read_ahead.is_needed or self._spills or is_scarce

    def _has_room(self, unit: Unit) -> bool:
        """Return whether a unit's reductions fit in memory beside the reductions of `_upcoming`.

        The predicted memory always has room for the reductions of two units.
        """
        started_and_next = [unit, *(started_units[0] for started_units, _ in self._upcoming)]
        return (
            len(started_and_next) < 3
            or sum(map(reduction_bytes, started_and_next)) <= self._reductions_limit
        )

    def _start(self, units: list[Unit]) -> StartedUnits:
        """Start to prepare units, if their blocks need a preparation.

        A unit of one block is prepared later, by the thread that computes it.
        """
        if units[0].blocks == 1 or not self._evaluator.needs_preparation(units[0]):
            self._read_ahead.begin(units[0], self._first_block(units[0]))
            return units, None
        return units, self._pool.submit(self._prepare, units)

    def _prepare(self, units: list[Unit]) -> Preparation:
        """Prepare the first unit; all of these units share its statistics.

        This runs in a separate thread, which combines the results of the scanning threads.
        """
        first_unit, *other_units = units
        with self._one_scan if self._scans_are_costly else nullcontext():
            preparation = self._evaluator.prepare(first_unit, self._passes.run, self._scratch)
        if not other_units:
            return preparation
        first_preparation = preparation[first_unit.expression]
        return {
            **preparation,
            **{other_unit.expression: first_preparation for other_unit in other_units},
        }

    def _enter(self, units: list[Unit], preparation: Future[Preparation] | None) -> None:
        """Make these units the current ones: their uncommitted blocks are handed out next."""
        try:
            self._current = units, preparation.result() if preparation else {}
        except (PassStopped, Interrupted):
            return  # the units stay pending; `Scheduler.run` raises the error at its end
        first_block = self._first_block(units[0])
        self._blocks_left = range(first_block, units[0].blocks)
        if preparation is not None:
            self._read_ahead.begin(units[0], first_block)

    def _first_block(self, unit: Unit) -> int:
        """Return the number of a unit's first uncommitted block."""
        return self._execution.progress[unit.number].committed_blocks
