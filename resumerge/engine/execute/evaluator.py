"""Computing a block: a pure function of the unit's expression and the block's number.

It reads the sources and touches nothing else, neither ledger nor output; it could run in another
process or on another machine and would give the same bits.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from resumerge.engine.execute.buffers import Buffers
from resumerge.engine.execute.native_backend import NativeBackend
from resumerge.kernels.blocks import MapFunction, Scan
from resumerge.methods import METHODS, TensorContext
from resumerge.planning.backend import is_compiled, needs_torch
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.reader import SourceReader

if TYPE_CHECKING:
    from resumerge.engine.execute.torch_backend import TorchBackend


@contextmanager
def _without_collecting() -> Iterator[None]:
    """No garbage collection inside: importing torch makes a million objects that all stay, and
    to look through them again and again takes a quarter of the import's time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Evaluator:
    """Evaluates blocks of the units of one plan; may be used by many threads at once.

    Every thread reads and computes in buffers of its own, which are used again for the next
    block: memory depends on the number of operands and threads, not on the size of a tensor.
    torch is loaded only for what the compiled kernels cannot compute.
    """

    def __init__(self, plan: Plan, reader: SourceReader, device: str = "cpu") -> None:
        self._plan = plan
        self._reader = reader
        self._buffers = Buffers()
        self._compiled = NativeBackend(reader, self._buffers)
        self._arithmetic: TorchBackend | None = None
        self._on_cpu = device == "cpu"
        self._prepared = lru_cache(16)(self._prepare)
        if needs_torch(plan, device):
            with _without_collecting():
                from resumerge.engine.execute.torch_backend import TorchBackend

            self._arithmetic = TorchBackend(reader, self._buffers, device)

    def start_thread(self) -> None:
        """To be called first in every thread that evaluates."""
        if self._arithmetic is not None:
            self._arithmetic.start_thread()

    def needs_statistics(self, unit: Unit) -> bool:
        """Whether the unit's blocks depend on reductions over the whole tensor."""
        if unit.expression.method == "copy" or unit.numel == 0:
            return False
        return METHODS[unit.expression.method].passes(self._prepared(unit.index)[0]) > 1

    def statistics(self, unit: Unit, scan: Scan[Any]) -> Any:
        """The reductions over the whole tensor that each of its blocks needs."""
        return METHODS[unit.expression.method].statistics(self._prepared(unit.index)[0], scan)

    def serial_scan(
        self, unit: Unit, function: MapFunction[Any], sample: bool = False
    ) -> Iterator[Any]:
        """Apply a function to every block of a unit, one after the other, in this thread."""
        return (self.map_block(unit, index, function, sample) for index in range(unit.blocks))

    def map_block(
        self, unit: Unit, index: int, function: MapFunction[Any], sample: bool = False
    ) -> Any:
        """Apply a function to the inputs of one block, or to a sample of them."""
        block = unit.block(index).sample() if sample else unit.block(index)
        return function(self._prepared(unit.index)[1].inputs(unit, block), block)

    def block(self, unit: Unit, index: int, statistics: Any) -> memoryview:
        """The bytes of one block of the output, valid until this thread's next call."""
        block = unit.block(index)
        if unit.numel == 0:
            return memoryview(b"")
        if unit.expression.method == "copy":
            operand = unit.expression.operands[0]
            view = self._buffers.plain("copy", unit.block_bytes(index)[1])
            self._reader.read_into(operand.source, operand.tensor, block.start, block.stop, view)
            return view
        context, arithmetic = self._prepared(unit.index)
        inputs = arithmetic.inputs(unit, block)
        method = METHODS[unit.expression.method]
        result = method.block(context, inputs, block, statistics)
        return arithmetic.rounded(unit, result)

    def copied_from(self, unit: Unit, index: int) -> tuple[int, int] | None:
        """(open file, offset) of the bytes that a block is a plain copy of; None if it is not."""
        if unit.expression.method != "copy" or unit.numel == 0:
            return None
        operand, block = unit.expression.operands[0], unit.block(index)
        span = self._reader.span(operand.source, operand.tensor, block.start, block.stop)
        return span and span[:2]

    def _prepare(self, number: int) -> tuple[TensorContext, NativeBackend | TorchBackend]:
        """A unit as its method sees it, and what computes it; asked for every block."""
        unit = self._plan.units[number]
        context = unit.context(self._plan.seed)
        if self._on_cpu and is_compiled(unit, self._plan.seed):
            return context, self._compiled
        assert self._arithmetic is not None
        return context, self._arithmetic
