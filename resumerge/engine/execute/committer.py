"""The committer of batches: syncs their shards, journals their units, seals complete shards."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from resumerge.digests import HASH_BYTES
from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.shards.checksums import unit_checksum
from resumerge.engine.shards.sealing import seal
from resumerge.ledger import Progress, Sample, UnitCommit, UnitMeasurements
from resumerge.planning.plan import Unit

_log = logging.getLogger(__name__)

LEDGER_SAMPLE_SECONDS = 1.0
"""The least seconds between two samples in the ledger."""

SAMPLES = 600
"""The number of samples after which the interval between samples grows with the attempt's age. The
number of samples then grows with the logarithm of the age."""


@dataclass(frozen=True, kw_only=True)
class WrittenBlocks:
    """Consecutive blocks of a unit that are written but not synced.

    Args:
        unit: the unit that the blocks belong to; a batch may have further blocks of it.
        indices: the numbers of the blocks within the unit.
        nbytes: the bytes of all blocks together, as they were written.
        hashes: the xxh3-128 of each block, 16 bytes each.
        input_hashes: for each block 16 bytes for each operand that is read from local models
            (`hashed_operands`), in block order; empty for a copied unit, or if inputs are not
            hashed.
        seconds: seconds spent computing and writing the blocks.
        measurements: for each block run an array with a row per block (`kernels.measurements`);
            empty if this unit is not measured, None if no unit is measured.
    """

    unit: Unit
    indices: range
    nbytes: int
    hashes: bytes
    input_hashes: bytes
    seconds: float
    measurements: Sequence[np.ndarray] | None = None

    @property
    def completes_unit(self) -> bool:
        """Whether these blocks include the unit's last block."""
        return self.indices.stop == self.unit.blocks

    @property
    def measured_rows(self) -> list[list[float]]:
        """A row of measurements for each block; empty if the blocks were not measured."""
        return [row for run in self.measurements or () for row in run.tolist()]


def _empty_measurements(unit: Unit) -> UnitMeasurements | None:
    """Return a unit's measurements before its first block; None if the unit is not measured."""
    tensor = unit.expression
    if not tensor.compared_models:
        return None
    return UnitMeasurements.empty(tensor.compared_models, *tensor.scheme_measured)


def bytes_committed(units: Sequence[Unit], progress: Sequence[Progress]) -> int:
    """Return the bytes of the committed blocks of all units."""
    return sum(
        unit.bytes_of(range(unit_progress.committed_blocks))
        for unit, unit_progress in zip(units, progress)
    )


class Committer:
    """A thread that commits one batch while the main loop collects the next batch.

    At most two batches are uncommitted: `submit` waits until the previous batch is committed.
    `uncommitted_shares` limits the bytes of both.

    Args:
        execution: the context of the execution; its shards are synced and sealed, its ledger is
            written.
        page_cache: drops pages that are no longer needed.
        on_commit: called in the committing thread with the numbers of the units that a batch
            completed.
        on_seal: called in the committing thread with the number of a sealed shard. An exception
            that it raises ends the run.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        page_cache: PageCache,
        on_commit: Callable[[Sequence[int]], None],
        on_seal: Callable[[int], None],
    ) -> None:
        self._execution, self._page_cache = execution, page_cache
        self._on_commit, self._on_seal = on_commit, on_seal
        self._started = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._pending: Future[None] | None = None
        self._batch = 0
        self._last_sample = float("-inf")
        units = execution.plan.units
        self._hashes = {
            unit.number: (bytearray(unit_progress.hashes), bytearray(unit_progress.input_hashes))
            for unit, unit_progress in zip(units, execution.progress)
            if not unit_progress.is_complete
        }
        """For each incomplete unit, the hashes of its committed blocks and the hashes of their
        inputs."""
        self._measurements = {
            number: execution.progress[number].measurements
            for number, (hashes, _) in self._hashes.items()
            if hashes
        }
        """For each unit with committed blocks in `_hashes`, the measurements of these blocks; None
        if a block of the unit was not measured."""
        self._units_left = Counter(units[number].shard for number in self._hashes)
        """The number of uncommitted units of each shard."""
        self.bytes_committed = bytes_committed(units, execution.progress)
        self._bytes_before = self.bytes_committed
        self._units_committed = 0
        # The first batch may take long, and memory grows before it is committed: sample now.
        execution.ledger.samples.add(execution.attempt, self._sample_now())

    def submit(self, batch: list[WrittenBlocks]) -> None:
        """Wait until the previous batch is committed, then start to commit this batch.

        Raises:
            Exception: the error that occurred when the previous batch was committed.
        """
        self.wait()
        self._pending = self._thread.submit(self._commit, batch)

    def wait(self) -> None:
        """Wait until all submitted batches are committed; raise the error of a batch that fails."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)

    def _commit(self, batch: list[WrittenBlocks]) -> None:
        """Sync, then journal, then seal, so that the ledger only lists blocks that are on the disk.

        Sources are checked first, so that the ledger lists no block of a source that has changed.
        """
        self._execution.watch.check(
            {written.unit.number: written.unit for written in batch}.values()
        )
        shard_numbers = sorted({written.unit.shard for written in batch})
        self._execution.files.sync(shard_numbers)
        batch = sorted(batch, key=lambda written: written.unit.number)
        for unit, blocks_of_unit in groupby(batch, lambda written: written.unit):
            index_ranges = [blocks.indices for blocks in blocks_of_unit]
            self._page_cache.finished(unit, range(index_ranges[0].start, index_ranges[-1].stop))
        self._journal(batch)
        for shard_number in shard_numbers:
            if self._units_left[shard_number] == 0 and not self._execution.plan.is_undecided:
                self._seal(shard_number)

    def _journal(self, batch: list[WrittenBlocks]) -> None:
        """Journal a batch in one transaction of the ledger; its shards must be synced."""
        seconds_by_unit: dict[int, float] = {}
        for blocks in batch:
            number = blocks.unit.number
            block_hashes, input_hashes = self._hashes[number]
            if not block_hashes:
                self._measurements[number] = _empty_measurements(blocks.unit)
            assert len(block_hashes) == blocks.indices.start * HASH_BYTES
            block_hashes += blocks.hashes
            input_hashes += blocks.input_hashes
            measurements, measured_rows = self._measurements[number], blocks.measured_rows
            if measurements is not None:
                all_measured = len(measured_rows) == len(blocks.indices)
                self._measurements[number] = (
                    measurements.plus(measured_rows) if all_measured else None
                )
            seconds_by_unit[number] = seconds_by_unit.get(number, 0.0) + blocks.seconds
        unit_commits = [
            self._unit_commit(number, unit_seconds)
            for number, unit_seconds in seconds_by_unit.items()
        ]
        completed_units = [unit.number for unit in unit_commits if unit.checksum]
        self._batch += 1
        self._units_committed += len(completed_units)
        self.bytes_committed += sum(blocks.nbytes for blocks in batch)
        governor = self._execution.governor
        attempt_totals = {
            "units_committed": self._units_committed,
            "bytes_committed": self.bytes_committed - self._bytes_before,
            "peak_rss": governor.peak_rss,
            "batch_bytes": governor.uncommitted_limit,
        }
        self._execution.ledger.units.commit_batch(
            self._execution.attempt, self._batch, unit_commits, attempt_totals, self._sample()
        )
        for number in completed_units:
            del self._hashes[number], self._measurements[number]
            self._units_left[self._execution.plan.units[number].shard] -= 1
        _log.debug("batch %d committed: %d runs of blocks", self._batch, len(batch))
        self._on_commit(completed_units)

    def _unit_commit(self, number: int, seconds: float) -> UnitCommit:
        block_hashes, input_hashes = map(bytes, self._hashes[number])
        is_complete = len(block_hashes) == self._execution.plan.units[number].blocks * HASH_BYTES
        checksum = unit_checksum(block_hashes) if is_complete else None
        return UnitCommit(
            number=number,
            hashes=block_hashes,
            input_hashes=input_hashes,
            checksum=checksum,
            seconds=seconds,
            measurements=self._measurements[number],
        )

    def _sample(self) -> Sample | None:
        """Return a sample of memory and progress for the ledger; None if it is too early."""
        now = time.monotonic()
        if now - self._last_sample < max(LEDGER_SAMPLE_SECONDS, (now - self._started) / SAMPLES):
            return None
        self._last_sample = now
        return self._sample_now()

    def _sample_now(self) -> Sample:
        governor = self._execution.governor
        return Sample(
            rss=governor.rss,
            available=governor.memory.available,
            budget=governor.budget,
            batch_bytes=governor.uncommitted_limit,
            bytes_done=self.bytes_committed,
        )

    def _seal(self, number: int) -> None:
        shard = self._execution.plan.shards[number]
        seal(shard, self._execution.files, self._execution.ledger, self._execution.storage)
        _log.info("shard %s sealed", shard.name)
        self._on_seal(number)
