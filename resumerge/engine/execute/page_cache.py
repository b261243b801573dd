"""Drops pages that the merge no longer needs from the page cache, if memory is scarce.

Otherwise a merge fills its cgroup with pages that it has read and written. The kernel then has to
reclaim a page for each page that is read, and also reclaims pages of the program itself. In the end
the merge spends more time on reading than on computing.
"""

from __future__ import annotations

from collections.abc import Iterable

from resumerge.engine.execute.execution import ExecutionContext
from resumerge.planning.plan import Unit
from resumerge.planning.written.unit_order import order_of_units
from resumerge.storage import drop_from_cache
from resumerge.tensors import Merged, Spilled, Stored, Tensor, stored_in


class PageCache:
    """The part of the main loop that drops pages of inputs and output from the page cache."""

    def __init__(self, execution: ExecutionContext) -> None:
        self._reader, self._files = execution.reader, execution.files
        self._governor = execution.governor
        units = execution.plan.units
        self._last_use: dict[Tensor, int] = {
            stored_tensor: unit_number
            for unit_number in order_of_units(execution.plan)
            for stored_tensor in stored_in(units[unit_number].expression)
        }
        """For each tensor of a source file, the number of the last unit that reads it."""

    def finished(self, unit: Unit, indices: range) -> None:
        """Drop the pages of synced output blocks, and of inputs that no later block reads."""
        if not self._governor.cache_is_scarce:
            return
        drop_from_cache(self._files.descriptor(unit.shard), *unit.span(indices))
        [(start, stop)] = unit.block_run(indices).ranges()
        self._drop(
            (leaf, unneeded_start, unneeded_stop)
            for leaf, unneeded_start, unneeded_stop in unit.expression.no_longer_read(start, stop)
            if self._last_use[leaf] == unit.number
        )

    def passed_over(self, tensor: Merged | Spilled, indices: range) -> None:
        """Drop the inputs that a pass has read, if the tensor's inputs exceed `cache_room`.

        These inputs are read again after the pass, but the kernel would reclaim their pages before
        that.
        """
        if not self._governor.cache_is_scarce:
            return
        input_bytes = sum(stored_tensor.nbytes for stored_tensor in stored_in(tensor))
        if input_bytes > self._governor.cache_room:
            [(start, stop)] = tensor.block_run(indices).ranges()
            self._drop(tensor.no_longer_read(start, stop))

    def _drop(self, leaves: Iterable[tuple[Tensor, int, int]]) -> None:
        for leaf, start, stop in leaves:
            if isinstance(leaf, Stored):
                descriptor = self._reader.descriptor(leaf)
                if descriptor is not None:
                    drop_from_cache(descriptor, *leaf.byte_range(start, stop))
