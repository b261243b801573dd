"""Computing blocks: a pure function of the unit's expression and the blocks' numbers.

An evaluator reads the sources and changes neither ledger nor output. Another process or machine
that evaluates the same block gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.engine.execute.checksums import hash_block
from resumerge.engine.execute.evaluation.buffers import Buffers
from resumerge.engine.execute.evaluation.input_hashes import hashed_operands
from resumerge.engine.execute.evaluation.kernel_backend import KernelBackend
from resumerge.engine.execute.evaluation.method_failures import (
    failures_named,
    keeps_inputs,
    kept_inputs,
)
from resumerge.engine.execute.evaluation.operands import Operands
from resumerge.kernels.blocks import MapFunction, Scan
from resumerge.methods import METHODS, Block, KernelMethod, Method
from resumerge.native import CODES
from resumerge.planning.backend import needs_torch
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.reader import SourceReader

if TYPE_CHECKING:
    from resumerge.engine.execute.evaluation.torch_backend import TorchBackend


class Evaluator:
    """Evaluates blocks of the units of one plan; may be used by many threads at once.

    Every thread reads and computes in buffers of its own, which it uses again for the next blocks:
    memory depends on the number of operands and threads, not on the size of a tensor. torch is
    imported only for methods that compute with it.
    """

    def __init__(
        self, plan: Plan, reader: SourceReader, device: str = "cpu", *, hashes: bool = True
    ) -> None:
        """
        Args:
            device: where torch computes.
            hashes: whether `compute` hashes what it reads from local models.
        """
        self._plan = plan
        self._reader = reader
        self._device = device
        self._buffers = Buffers()
        self._operands = Operands(reader, self._buffers)
        self._needs_torch = needs_torch(plan)
        self._backend = lru_cache(16)(self._choose_backend)
        self._hashed = lru_cache(16)(
            lambda number: list(hashed_operands(plan, plan.units[number])) if hashes else []
        )

    def start_thread(self) -> None:
        """Prepare the calling thread; every thread that evaluates calls this first."""
        if self._needs_torch:
            from resumerge.engine.execute.evaluation.torch_backend import use_one_thread

            use_one_thread()

    def needs_statistics(self, unit: Unit) -> bool:
        """Whether the unit's blocks depend on reductions over the whole tensor."""
        if unit.expression.method == "copy" or unit.numel == 0:
            return False
        return METHODS[unit.expression.method].passes(unit.context(self._plan.seed)) > 1

    def statistics(self, unit: Unit, scan: Scan[Any]) -> Any:
        """The reductions over the whole tensor that each of its blocks needs."""
        with failures_named(unit):
            tensor = unit.context(self._plan.seed)
            return METHODS[unit.expression.method].statistics(tensor, scan)

    def serial_scan(self, unit: Unit) -> Scan[Any]:
        """A scan over a unit's blocks, one after the other, in the calling thread."""

        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            for index in range(unit.blocks):
                yield from self.map_blocks(unit, [index], function, sample)

        return scan

    def map_blocks(
        self, unit: Unit, indices: Sequence[int], function: MapFunction[Any], sample: bool = False
    ) -> list[Any]:
        """The partial results of `function` for consecutive blocks, or for samples of them."""
        blocks = [unit.block(index) for index in indices]
        if sample:
            blocks = [block.sample() for block in blocks]
        inputs = self._operands.read(unit, blocks)
        backend = self._backend(unit.index)
        with failures_named(unit):
            partials = backend.map(function, inputs, blocks, sample)
        if backend.is_users and keeps_inputs(partials, inputs):
            raise kept_inputs(unit)
        return partials

    def compute(
        self, unit: Unit, indices: Sequence[int], statistics: Any
    ) -> tuple[memoryview, list[bytes]]:
        """Consecutive blocks of the output.

        Returns:
            Their bytes, valid until this thread's next call; and for each block the hashes of what
            it was computed from, one for each of `hashed_operands`, none where it is a copy.

        Raises:
            Resumable: the method fails, or returns something else than a block.
        """
        if unit.expression.method == "copy" or unit.numel == 0:
            return self._copied(unit, indices), [b""] * len(indices)
        blocks = [unit.block(index) for index in indices]
        seen = _Hashes(self._hashed(unit.index), len(blocks))
        inputs = self._operands.read(unit, blocks, seen.add)
        code = CODES[FLOATS[unit.dtype]]
        out = self._buffers.vector("out", blocks[-1].stop - blocks[0].start, code)
        with failures_named(unit):
            self._backend(unit.index).compute(inputs, blocks, statistics, out)
        return out.data.view(np.uint8).data, seen.of_blocks()

    def input_hashes(self, unit: Unit, index: int, operands: Sequence[int]) -> bytes:
        """Read some operands of a block again, and hash them as `compute` does.

        Args:
            operands: their numbers, ascending.
        """
        if unit.numel == 0:
            return b""
        if unit.expression.method == "copy":
            return hash_block(self._copied(unit, [index]))
        chosen = tuple(unit.expression.operands[number] for number in operands)
        only = replace(unit, expression=replace(unit.expression, operands=chosen))
        seen = _Hashes(range(len(chosen)), 1)
        self._operands.read(only, [unit.block(index)], seen.add)
        return seen.of_blocks()[0]

    def copied_from(self, unit: Unit, indices: Sequence[int]) -> tuple[int, int] | None:
        """(file descriptor, offset) of the bytes that blocks copy; None if they are computed."""
        if unit.expression.method != "copy" or unit.numel == 0:
            return None
        operand, elements = unit.expression.operands[0], _elements(unit, indices)
        span = self._reader.span(operand.source, operand.tensor, elements.start, elements.stop)
        return span and span[:2]

    def _copied(self, unit: Unit, indices: Sequence[int]) -> memoryview:
        if unit.numel == 0:
            return memoryview(b"")
        operand, elements = unit.expression.operands[0], _elements(unit, indices)
        size = nbytes(unit.dtype, elements.stop) - nbytes(unit.dtype, elements.start)
        view = self._buffers.take("copy", size).data
        source, tensor = operand.source, operand.tensor
        self._reader.read_into(source, tensor, elements.start, elements.stop, view)
        return view

    def _choose_backend(self, number: int) -> KernelBackend | TorchBackend:
        unit = self._plan.units[number]
        method, tensor = METHODS[unit.expression.method], unit.context(self._plan.seed)
        if isinstance(method, KernelMethod):
            return KernelBackend(unit, method, tensor)
        from resumerge.engine.execute.evaluation.torch_backend import TorchBackend

        assert isinstance(method, Method)
        return TorchBackend(unit, method, tensor, self._buffers, self._device)


def _elements(unit: Unit, indices: Sequence[int]) -> Block:
    first, last = unit.block(indices[0]), unit.block(indices[-1])
    return Block(first.index, first.start, last.stop)


class _Hashes:
    """Collects the hashes of blocks' operands while they are read.

    Args:
        wanted: numbers of the operands, ascending.
    """

    def __init__(self, wanted: Sequence[int], blocks: int) -> None:
        self._found: dict[int, list[bytes]] = {operand: [] for operand in wanted}
        self._blocks = blocks

    def add(self, operand: int, data: np.ndarray) -> None:
        if operand in self._found:
            self._found[operand].append(hash_block(data.data))

    def of_blocks(self) -> list[bytes]:
        """For each block its operands' hashes, one after the other."""
        if not self._found:
            return [b""] * self._blocks
        return [b"".join(hashes) for hashes in zip(*self._found.values())]
