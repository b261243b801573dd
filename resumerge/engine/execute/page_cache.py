"""Page cache that the merge will not need again is dropped where memory is scarce.

Left alone, a merge fills a cgroup with the pages of what it has read and written. From then on the
kernel has to find pages to reclaim for every page that is read, takes those of the program itself
too, and in the end reads more than it computes.
"""

from __future__ import annotations

from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.resources.governor import Governor
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.dtypes import nbytes
from resumerge.sources.reader import SourceReader
from resumerge.storage import drop_from_cache

SCANNED_BLOCKS = 16
"""Blocks of a scan whose inputs are dropped together."""


class PageCache:
    """Knows which pages are read or written for the last time."""

    def __init__(
        self,
        plan: Plan,
        reader: SourceReader,
        files: ShardFiles,
        governor: Governor,
    ) -> None:
        self._reader, self._files, self._governor = reader, files, governor
        self._last_use = {
            (source, tensor.name): unit.index
            for unit in plan.units
            for operand in unit.expression.operands
            for source, tensor in operand.tables
        }

    def finished(self, unit: Unit, first: int, last: int) -> None:
        """Blocks `first` to `last` are on disk: neither they nor their inputs are needed again."""
        if not self._governor.cache_is_scarce:
            return
        start, stop = unit.block(first).start, unit.block(last).stop
        offset = unit.block_bytes(first)[0]
        end = sum(unit.block_bytes(last))
        drop_from_cache(self._files.descriptor(unit.shard), offset, end - offset)
        self._drop_inputs(unit, start, stop, final=True)

    def scanned(self, unit: Unit, index: int) -> None:
        """A scan, after which the inputs are read again, has passed a block.

        What does not fit would be gone before it is read again, and other pages with it.
        """
        if index % SCANNED_BLOCKS != SCANNED_BLOCKS - 1 or not self._governor.cache_is_scarce:
            return
        inputs = sum(operand.tensor.nbytes for operand in unit.expression.operands)
        if inputs > self._governor.cache_room:
            first = unit.block(index + 1 - SCANNED_BLOCKS).start
            self._drop_inputs(unit, first, unit.block(index).stop, final=False)

    def _drop_inputs(self, unit: Unit, start: int, stop: int, *, final: bool) -> None:
        for operand in unit.expression.operands:
            if operand.rows and stop < unit.numel:
                continue  # rows come from anywhere: the tensors go when the last was read
            for source, tensor in operand.tables:
                if final and self._last_use[source, tensor.name] > unit.index:
                    continue
                begin, end = (0, tensor.numel) if operand.rows else (start, stop)
                first = nbytes(tensor.dtype, begin)
                descriptor = self._reader.descriptor(source, tensor)
                length = nbytes(tensor.dtype, end) - first
                drop_from_cache(descriptor, tensor.offset + first, length)
