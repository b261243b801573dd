"""Forecasts which ranges of streamed files are read next, so that no thread waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from resumerge.planning.plan import Plan, Unit
from resumerge.planning.reads import is_kept, reads_of_blocks, reads_of_pass
from resumerge.remote.file import RemoteFile
from resumerge.remote.forecast import Forecast
from resumerge.sources.reader import SourceReader
from resumerge.tensors import Merged, Spilled


class ReadAhead:
    """A forecast of the ranges that units' blocks, and the passes before them, will read.

    Without streamed files every method does nothing.

    Attributes:
        is_needed: whether any source file is streamed.
    """

    def __init__(self, plan: Plan, reader: SourceReader) -> None:
        self._reader = reader
        self.is_needed = any(
            source.is_streamed(name) for source in plan.sources for name in source.files
        )
        self._units: dict[int, Forecast[RemoteFile]] = {}

    def begin(self, unit: Unit, first: int) -> None:
        """Announce that the blocks of a unit will be computed, from block `first` on."""
        if self.is_needed:
            reads = reads_of_blocks(unit, first)
            self._units[unit.number] = self._reader.expect(reads, keep=is_kept(unit))

    def end(self, unit: Unit) -> None:
        """Announce that all blocks of a unit are computed."""
        if unit.number in self._units:
            self._reader.ranges.forget(self._units.pop(unit.number))

    @contextmanager
    def expect_pass(self, tensor: Merged | Spilled, *, sample: bool) -> Iterator[None]:
        """Announce a pass over all blocks of a tensor; the forecast ends with the context."""
        if not self.is_needed:
            yield
            return
        forecast = self._reader.expect(reads_of_pass(tensor, sample=sample))
        try:
            yield
        finally:
            self._reader.ranges.forget(forecast)
