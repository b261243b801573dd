"""Computing a block: a pure function of the unit's expression and the block's number.

It reads the sources and touches nothing else, neither ledger nor output; it could run in another
process or on another machine and would give the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from resumerge.methods import METHODS, Block
from resumerge.methods.method import Part
from resumerge.plan.model import Operand, Plan, Unit
from resumerge.plan.planner import work_of
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.read import SourceReader


class Evaluator:
    """Evaluates blocks of the units of one plan; may be used by many threads at once.

    Every thread reads and computes in buffers of its own, which are used again for the next
    block: memory depends on the number of operands and threads, not on the size of a tensor.
    """

    def __init__(self, plan: Plan, reader: SourceReader, device: str = "cpu") -> None:
        self._plan = plan
        self._reader = reader
        self._device = torch.device(device)
        self._local = threading.local()

    def needs_statistics(self, unit: Unit) -> bool:
        """Whether the unit's blocks depend on reductions over the whole tensor."""
        if unit.expression.method == "copy" or unit.numel == 0:
            return False
        work = work_of(unit.name, unit.shape, unit.expression, self._plan.seed)
        return METHODS[unit.expression.method].reads(work) > 1

    def statistics(self, unit: Unit, scan: Any) -> Any:
        """The reductions over the whole tensor that each of its blocks needs."""
        work = work_of(unit.name, unit.shape, unit.expression, self._plan.seed)
        return METHODS[unit.expression.method].statistics(work, scan)

    def serial_scan(self, unit: Unit, part: Part[Any]) -> Iterator[Any]:
        """`part` of every block of a unit, one after the other, in this thread."""
        return (self.part(unit, index, part) for index in range(unit.blocks))

    def part(self, unit: Unit, index: int, part: Part[Any]) -> Any:
        """`part` of one block of a unit's inputs."""
        block = unit.block(index)
        return part(self._inputs(unit, block), block)

    def block(self, unit: Unit, index: int, statistics: Any) -> memoryview:
        """The bytes of one block of the output, valid until this thread's next call."""
        block = unit.block(index)
        expression = unit.expression
        if unit.numel == 0:
            return memoryview(b"")
        if expression.method == "copy":
            return self._read(0, expression.operands[0], block)
        work = work_of(unit.name, unit.shape, expression, self._plan.seed)
        method = METHODS[expression.method]
        result = method.block(work, self._inputs(unit, block), block, statistics)
        dtype = getattr(torch, FLOATS[unit.dtype])
        rounded = self._buffer("out", (block.stop - block.start) * dtype.itemsize)
        rounded.view(dtype).copy_(result)
        return _bytes_of(rounded)

    def copied_from(self, unit: Unit, index: int) -> tuple[int, int] | None:
        """(open file, offset) of the bytes that a block is a plain copy of; None if it is not."""
        if unit.expression.method != "copy" or unit.numel == 0:
            return None
        operand = unit.expression.operands[0]
        first = nbytes(operand.tensor.dtype, unit.block(index).start)
        descriptor = self._reader.descriptor(operand.source, operand.tensor)
        return descriptor, operand.tensor.offset + first

    def _inputs(self, unit: Unit, block: Block) -> list[Tensor]:
        """The operands of a block in float32, rounded to the recipe's dtype before."""
        cast = unit.expression.cast
        tensors = []
        for k, operand in enumerate(unit.expression.operands):
            dtype = getattr(torch, FLOATS[operand.tensor.dtype])
            wide = self._buffer(f"float32 {k}", (block.stop - block.start) * 4).view(torch.float32)
            if dtype == torch.float32 and cast in (None, "float32"):
                self._read_to(_bytes_of(wide.view(torch.uint8)), operand, block)
            else:
                self._read(k, operand, block)
                read = self._raw(k, operand, block).view(dtype)
                wide.copy_(
                    read if cast in (None, str(dtype)[6:]) else read.to(getattr(torch, cast))
                )
            tensors.append(wide.to(self._device))
        return tensors

    def _read(self, k: int, operand: Operand, block: Block) -> memoryview:
        view = _bytes_of(self._raw(k, operand, block))
        self._read_to(view, operand, block)
        return view

    def _raw(self, k: int, operand: Operand, block: Block) -> Tensor:
        dtype = operand.tensor.dtype
        return self._buffer(f"raw {k}", nbytes(dtype, block.stop) - nbytes(dtype, block.start))

    def _read_to(self, view: memoryview, operand: Operand, block: Block) -> None:
        self._reader.read_into(operand.source, operand.tensor, block.start, block.stop, view)

    def _buffer(self, name: str, size: int) -> Tensor:
        """`size` bytes of this thread's buffer of that name."""
        buffers: dict[str, Tensor] = self._local.__dict__
        found = buffers.get(name)
        if found is None or found.numel() < size:
            found = buffers[name] = torch.empty(size, dtype=torch.uint8)
        return found[:size]


def _bytes_of(tensor: Tensor) -> memoryview:
    """A writable view of a uint8 tensor's memory."""
    return tensor.numpy().data
