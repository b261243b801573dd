"""Drops pages from the page cache that the merge does not need again, where memory is scarce.

Otherwise a merge fills its cgroup with the pages that it has read and written. The kernel then has
to reclaim pages for every page that is read, takes those of the program itself too, and in the end
the merge reads more than it computes.
"""

from __future__ import annotations

from resumerge.engine.execute.execution import Execution
from resumerge.planning.plan import Unit
from resumerge.sources.dtypes import nbytes
from resumerge.storage import drop_from_cache

SCANNED_BLOCKS = 16
"""Blocks of a scan whose inputs are dropped together."""


class PageCache:
    """Knows which pages are read or written for the last time."""

    def __init__(self, execution: Execution) -> None:
        self._reader, self._files = execution.reader, execution.files
        self._governor = execution.governor
        self._last_use = {
            (source, tensor.name): unit.index
            for unit in execution.plan.units
            for operand in unit.expression.operands
            for source, tensor in operand.tables
        }

    def finished(self, unit: Unit, indices: range) -> None:
        """Drop blocks of the output, which are on disk, and their inputs."""
        if not self._governor.cache_is_scarce:
            return
        drop_from_cache(self._files.descriptor(unit.shard), *unit.span(indices))
        self._drop_inputs(unit, indices, final=True)

    def scanned(self, unit: Unit, index: int) -> None:
        """Drop the inputs of blocks that a scan has passed, where the whole unit does not fit.

        The inputs are read again after the scan, but these pages would be reclaimed before.
        """
        if index % SCANNED_BLOCKS != SCANNED_BLOCKS - 1 or not self._governor.cache_is_scarce:
            return
        inputs = sum(operand.tensor.nbytes for operand in unit.expression.operands)
        if inputs > self._governor.cache_room:
            self._drop_inputs(unit, range(index + 1 - SCANNED_BLOCKS, index + 1), final=False)

    def _drop_inputs(self, unit: Unit, indices: range, *, final: bool) -> None:
        [(start, stop)] = unit.run(indices).ranges()
        for operand in unit.expression.operands:
            if operand.rows and stop < unit.numel:
                continue  # rows may come from anywhere: drop the tensors after the last block
            for source, tensor in operand.tables:
                if final and self._last_use[source, tensor.name] > unit.index:
                    continue
                span = (0, tensor.numel) if operand.rows else (start, stop)
                for member, begin, end in tensor.pieces(*span):
                    first = nbytes(member.dtype, begin)
                    descriptor = self._reader.descriptor(source, member)
                    length = nbytes(member.dtype, end) - first
                    drop_from_cache(descriptor, member.offset + first, length)
