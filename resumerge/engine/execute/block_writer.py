"""The work of each computing thread: compute the blocks of a task, write and hash them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.evaluation.tensor_evaluator import Preparation
from resumerge.engine.execute.committer import WrittenBlocks
from resumerge.engine.execute.execution import ExecutionContext
from resumerge.engine.execute.unit_feed import BlockTask
from resumerge.kernels.hashes import hash_blocks
from resumerge.planning.plan import Unit


@dataclass(frozen=True)
class BlockWriter:
    """A writer of blocks, which all computing threads share.

    Args:
        execution: the context of the execution, with the files and the storage to write to.
        evaluator: computes the blocks in the thread that calls `write`.
        scratch: creates scratch files for units of one block, which are prepared here.
    """

    execution: ExecutionContext
    evaluator: Evaluator
    scratch: Scratch

    def write(self, task: BlockTask) -> list[WrittenBlocks]:
        """Compute and write the blocks of a task, for each of its units."""
        if len(task.units) > 1:
            return self._write_together(task)
        return [self._of_unit(task.units[0], task.indices, task.preparation)]

    def _write_together(self, task: BlockTask) -> list[WrittenBlocks]:
        """Compute and write blocks of units that read the same ranges; each range is read once."""
        written_blocks, unit_started = [], time.perf_counter()
        computed_units = self.evaluator.compute_together(
            task.units, task.indices, task.preparation, measures=self.execution.measures
        )
        for unit, (block_bytes, input_hashes, measurements) in zip(
            task.units, computed_units, strict=True
        ):
            block_hashes = self._store(unit, task.indices, block_bytes)
            stored_at = time.perf_counter()
            written_blocks.append(
                WrittenBlocks(
                    unit=unit,
                    indices=task.indices,
                    nbytes=len(block_bytes),
                    hashes=block_hashes,
                    input_hashes=input_hashes,
                    seconds=stored_at - unit_started,
                    measurements=measurements,
                )
            )
            unit_started = stored_at
            self.execution.reporter.heartbeat()
        return written_blocks

    def _of_unit(self, unit: Unit, indices: range, preparation: Preparation) -> WrittenBlocks:
        """Compute and write consecutive blocks of one unit."""
        if unit.blocks == 1 and self.evaluator.needs_preparation(unit):
            preparation = self.evaluator.prepare(unit, scratch=self.scratch)
        started_at = time.perf_counter()
        measurements: list[np.ndarray] | None = [] if self.execution.measures else None
        if unit.is_copied:  # block by block: see `Unit.is_copied`
            hash_pairs = [self._compute(unit, range(n, n + 1), preparation) for n in indices]
            block_hashes, input_hashes = map(b"".join, zip(*hash_pairs))
        else:
            block_hashes, input_hashes = self._compute(unit, indices, preparation, measurements)
        self.execution.reporter.heartbeat()
        return WrittenBlocks(
            unit=unit,
            indices=indices,
            nbytes=unit.bytes_of(indices),
            hashes=block_hashes,
            input_hashes=input_hashes,
            seconds=time.perf_counter() - started_at,
            measurements=measurements,
        )

    def _compute(
        self,
        unit: Unit,
        indices: range,
        preparation: Preparation,
        measurements: list[np.ndarray] | None = None,
    ) -> tuple[bytes, bytes]:
        """Compute blocks and write them in one piece; return the hashes of blocks and of inputs."""
        data, input_hashes = self.evaluator.compute(unit, indices, preparation, measurements)
        return self._store(unit, indices, data), input_hashes

    def _store(self, unit: Unit, indices: range, data: memoryview) -> bytes:
        """Write blocks to their shard's file, and return their hashes."""
        hashes = hash_blocks(data, unit.bytes_of(indices[:1]))
        files = self.execution.files
        if not files.share_if_copy(unit.shard):
            descriptor, (offset, size) = files.descriptor(unit.shard), unit.span(indices)
            self.execution.storage.write(descriptor, data, offset)
            self.execution.storage.begin_sync(descriptor, offset, size)
        return hashes
