"""Computing a block: a pure function of the unit's expression and the block's number.

An evaluator reads the sources and changes neither ledger nor output. Another process or machine
that evaluates the same block gets the same bits.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.engine.execute.checksums import hash_block
from resumerge.engine.execute.evaluation.buffers import Buffers
from resumerge.engine.execute.evaluation.input_hashes import hashed_operands
from resumerge.engine.execute.evaluation.method_failures import (
    described,
    failures_named,
    keeps_inputs,
    kept_inputs,
    wrong_result,
)
from resumerge.engine.execute.evaluation.native_backend import NativeBackend
from resumerge.kernels.blocks import MapFunction, Scan
from resumerge.methods import METHODS, Block, TensorContext
from resumerge.methods.contract import is_users
from resumerge.planning.backend import is_compiled, needs_torch
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.dtypes import nbytes
from resumerge.sources.reader import SourceReader

if TYPE_CHECKING:
    from resumerge.engine.execute.evaluation.torch_backend import TorchBackend


class Evaluator:
    """Evaluates blocks of the units of one plan; may be used by many threads at once.

    Every thread reads and computes in buffers of its own, which it uses again for the next block:
    memory depends on the number of operands and threads, not on the size of a tensor. torch is
    imported only for what the compiled kernels cannot compute.
    """

    def __init__(
        self, plan: Plan, reader: SourceReader, device: str = "cpu", *, hashes: bool = True
    ) -> None:
        """
        Args:
            hashes: whether `block` hashes what it reads from local models.
        """
        self._plan = plan
        self._reader = reader
        self._buffers = Buffers()
        self._native = NativeBackend(reader, self._buffers)
        self._torch: TorchBackend | None = None
        self._on_cpu = device == "cpu"
        self._prepared = lru_cache(16)(self._prepare)
        self._hashed = lru_cache(16)(
            lambda number: hashed_operands(plan, plan.units[number]) if hashes else ()
        )
        if needs_torch(plan, device):
            from resumerge.engine.execute.evaluation.torch_backend import TorchBackend

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
        with failures_named(unit):
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
        backend = self._prepared(unit.index)[1]
        inputs = backend.inputs(unit, block)
        with failures_named(unit):
            partial = function(inputs, block)
        if keeps_inputs(partial, inputs):
            raise kept_inputs(unit)
        return partial

    def block(self, unit: Unit, index: int, statistics: Any) -> tuple[memoryview, bytes]:
        """One block of the output.

        Returns:
            Its bytes, valid until this thread's next call; and the hashes of what it was computed
            from, one for each of `hashed_operands`, none where it is a copy.

        Raises:
            Resumable: the method fails, or returns something else than a block.
        """
        block = unit.block(index)
        if unit.numel == 0:
            return memoryview(b""), b""
        if unit.expression.method == "copy":
            return self._copied(unit, block), b""
        tensor, backend = self._prepared(unit.index)
        seen = _Hashes(self._hashed(unit.index))
        inputs = backend.inputs(unit, block, seen.add)
        checked = is_users(unit.expression.method) and backend.are_finite(inputs)
        with failures_named(unit):
            result = METHODS[unit.expression.method].block(tensor, inputs, block, statistics)
        if not backend.is_block(result, block):
            raise wrong_result(unit, block, backend.expected(block), described(result))
        if checked and not backend.are_finite([result]):
            raise wrong_result(unit, block, "finite numbers, as all inputs are", "NaN or infinity")
        return backend.rounded(unit, result), seen.found

    def input_hashes(self, unit: Unit, index: int, operands: Sequence[int]) -> bytes:
        """Read some operands of a block again, and hash them as `block` does.

        Args:
            operands: their numbers, ascending.
        """
        block = unit.block(index)
        if unit.numel == 0:
            return b""
        if unit.expression.method == "copy":
            return hash_block(self._copied(unit, block))
        chosen = tuple(unit.expression.operands[number] for number in operands)
        only = replace(unit, expression=replace(unit.expression, operands=chosen))
        seen = _Hashes(range(len(chosen)))
        self._prepared(unit.index)[1].inputs(only, block, seen.add)
        return seen.found

    def copied_from(self, unit: Unit, index: int) -> tuple[int, int] | None:
        """(file descriptor, offset) of the bytes that a block copies; None if it is computed."""
        if unit.expression.method != "copy" or unit.numel == 0:
            return None
        operand, block = unit.expression.operands[0], unit.block(index)
        span = self._reader.span(operand.source, operand.tensor, block.start, block.stop)
        return span and span[:2]

    def _copied(self, unit: Unit, block: Block) -> memoryview:
        operand = unit.expression.operands[0]
        first, last = nbytes(unit.dtype, block.start), nbytes(unit.dtype, block.stop)
        view = self._buffers.plain("copy", last - first)
        self._reader.read_into(operand.source, operand.tensor, block.start, block.stop, view)
        return view

    def _prepare(self, number: int) -> tuple[TensorContext, NativeBackend | TorchBackend]:
        """What a unit's method knows of its tensor, and the backend that computes it."""
        unit = self._plan.units[number]
        tensor = unit.context(self._plan.seed)
        if self._on_cpu and is_compiled(unit, self._plan.seed):
            return tensor, self._native
        assert self._torch is not None
        return tensor, self._torch


class _Hashes:
    """Collects the hashes of a block's operands while they are read."""

    def __init__(self, wanted: Container[int]) -> None:
        self._wanted = wanted
        self.found = b""

    def add(self, operand: int, data: np.ndarray) -> None:
        if operand in self._wanted:
            self.found += hash_block(data.data)
