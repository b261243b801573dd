"""Computing a block: a pure function of the unit's expression and the block's number.

An evaluator reads the sources and changes neither ledger nor output. Another process or machine
that evaluates the same block gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class Evaluator:
    """Evaluates blocks of the units of one plan; may be used by many threads at once.

    Every thread reads and computes in buffers of its own, which it uses again for the next block:
    memory depends on the number of operands and threads, not on the size of a tensor. torch is
    imported only for what the compiled kernels cannot compute.
    """

    def __init__(self, plan: Plan, reader: SourceReader, device: str = "cpu") -> None:
        self._plan = plan
        self._reader = reader
        self._buffers = Buffers()
        self._native = NativeBackend(reader, self._buffers)
        self._torch: TorchBackend | None = None
        self._on_cpu = device == "cpu"
        self._prepared = lru_cache(16)(self._prepare)
        if needs_torch(plan, device):
            from resumerge.engine.execute.torch_backend import TorchBackend

            self._torch = TorchBackend(reader, self._buffers, device)

    def start_thread(self) -> None:
        """Prepare the calling thread; every thread that evaluates calls this first."""
        if self._torch is not None:
            self._torch.start_thread()

    def needs_statistics(self, unit: Unit) -> bool:
        """Whether the unit's blocks depend on reductions over the whole tensor."""
        if unit.expression.method == "copy" or unit.numel == 0:
            return False
        return METHODS[unit.expression.method].passes(self._prepared(unit.index)[0]) > 1

    def statistics(self, unit: Unit, scan: Scan[Any]) -> Any:
        """The reductions over the whole tensor that each of its blocks needs."""
        return METHODS[unit.expression.method].statistics(self._prepared(unit.index)[0], scan)

    def serial_scan(self, unit: Unit) -> Scan[Any]:
        """A scan over a unit's blocks, one after the other, in the calling thread."""

        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            return (self.map_block(unit, k, function, sample) for k in range(unit.blocks))

        return scan

    def map_block(
        self, unit: Unit, index: int, function: MapFunction[Any], sample: bool = False
    ) -> Any:
        """`function` of one block of a unit's inputs, or of a sample of the block."""
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
        tensor, backend = self._prepared(unit.index)
        inputs = backend.inputs(unit, block)
        result = METHODS[unit.expression.method].block(tensor, inputs, block, statistics)
        return backend.rounded(unit, result)

    def copied_from(self, unit: Unit, index: int) -> tuple[int, int] | None:
        """(file descriptor, offset) of the bytes that a block copies; None if it is computed."""
        if unit.expression.method != "copy" or unit.numel == 0:
            return None
        operand, block = unit.expression.operands[0], unit.block(index)
        span = self._reader.span(operand.source, operand.tensor, block.start, block.stop)
        return span and span[:2]

    def _prepare(self, number: int) -> tuple[TensorContext, NativeBackend | TorchBackend]:
        """What a unit's method knows of its tensor, and the backend that computes it."""
        unit = self._plan.units[number]
        tensor = unit.context(self._plan.seed)
        if self._on_cpu and is_compiled(unit, self._plan.seed):
            return tensor, self._native
        assert self._torch is not None
        return tensor, self._torch
