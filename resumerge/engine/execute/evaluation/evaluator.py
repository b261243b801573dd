"""Computing blocks: a pure function of the unit's expression and the blocks' numbers.

An evaluator reads the sources and changes neither ledger nor output. Another process or machine
that evaluates the same block gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
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
from resumerge.engine.execute.evaluation.row_gather import RowReader
from resumerge.kernels.blocks import MapFunction, Run, Scan
from resumerge.methods import METHODS, KernelMethod, Method
from resumerge.native import CODES, Vector
from resumerge.planning.backend import needs_torch
from resumerge.planning.plan import Expression, Plan, Unit
from resumerge.sources.dtypes import FLOATS
from resumerge.sources.reader import SourceReader

if TYPE_CHECKING:
    from resumerge.engine.execute.evaluation.torch_backend import TorchBackend


@dataclass(frozen=True)
class _Prepared:
    """What is found out once for all blocks of a unit.

    Args:
        hashed: numbers of the operands that are hashed, ascending.
    """

    operands: Operands
    backend: KernelBackend | TorchBackend
    hashed: list[int]


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
        self._hashes = hashes
        self._buffers = Buffers()
        self._rows = RowReader(reader, self._buffers)
        self._needs_torch = needs_torch(plan)
        self._prepared = lru_cache(16)(self._prepare)

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
                yield from self.map_blocks(unit, range(index, index + 1), function, sample)

        return scan

    def map_blocks(
        self, unit: Unit, indices: range, function: MapFunction[Any], sample: bool = False
    ) -> list[Any]:
        """The partial results of `function` for consecutive blocks, or for samples of them."""
        prepared, run = self._prepared(unit.index), unit.run(indices, sample=sample)
        inputs = prepared.operands.read(run, _unseen)
        with failures_named(unit):
            partials = prepared.backend.map(function, inputs, run)
        if prepared.backend.is_users and keeps_inputs(partials, inputs):
            raise kept_inputs(unit)
        return partials

    def compute(self, unit: Unit, indices: range, statistics: Any) -> tuple[memoryview, bytes]:
        """Consecutive blocks of the output.

        Returns:
            Their bytes, valid until this thread's next call; and the hashes of what they were
            computed from: for each block one for each of `hashed_operands`, none for a copy.

        Raises:
            Resumable: the method fails, or returns something else than a block.
        """
        if unit.expression.method == "copy" or unit.numel == 0:
            return self._copied(unit, indices), b""
        prepared, run = self._prepared(unit.index), unit.run(indices)
        hashes = _Hashes(prepared.hashed, run)
        inputs = prepared.operands.read(run, hashes.add)
        out = self._buffers.vector("out", run.length, CODES[FLOATS[unit.dtype]])
        with failures_named(unit):
            prepared.backend.compute(inputs, run, statistics, out)
        return out.data.view(np.uint8).data, hashes.of_blocks()

    def input_hashes(self, unit: Unit, index: int, operands: Sequence[int]) -> bytes:
        """Read some operands of a block again, and hash them as `compute` does.

        Args:
            operands: their numbers, ascending.
        """
        if unit.numel == 0:
            return b""
        indices = range(index, index + 1)
        if unit.expression.method == "copy":
            return hash_block(self._copied(unit, indices))
        chosen = tuple(unit.expression.operands[number] for number in operands)
        run = unit.run(indices)
        hashes = _Hashes(range(len(chosen)), run)
        self._read_only(replace(unit.expression, operands=chosen)).read(run, hashes.add)
        return hashes.of_blocks()

    def copied_from(self, unit: Unit, indices: range) -> tuple[int, int] | None:
        """(file descriptor, offset) of the bytes that blocks copy; None if they are computed."""
        if unit.expression.method != "copy" or unit.numel == 0:
            return None
        operand, [(start, stop)] = unit.expression.operands[0], unit.run(indices).ranges()
        span = self._reader.span(operand.source, operand.tensor, start, stop)
        return span and span[:2]

    def _copied(self, unit: Unit, indices: range) -> memoryview:
        if unit.numel == 0:
            return memoryview(b"")
        operand, [(start, stop)] = unit.expression.operands[0], unit.run(indices).ranges()
        view = self._buffers.take("copy", unit.span(indices)[1]).data
        self._reader.read_into(operand.source, operand.tensor, start, stop, view)
        return view

    def _prepare(self, number: int) -> _Prepared:
        unit = self._plan.units[number]
        hashed = list(hashed_operands(self._plan, unit)) if self._hashes else []
        return _Prepared(self._read_only(unit.expression), self._choose_backend(unit), hashed)

    def _read_only(self, expression: Expression) -> Operands:
        return Operands(expression, self._reader, self._buffers, self._rows)

    def _choose_backend(self, unit: Unit) -> KernelBackend | TorchBackend:
        method, tensor = METHODS[unit.expression.method], unit.context(self._plan.seed)
        if isinstance(method, KernelMethod):
            return KernelBackend(unit, method, tensor)
        from resumerge.engine.execute.evaluation.torch_backend import TorchBackend

        assert isinstance(method, Method)
        return TorchBackend(unit, method, tensor, self._buffers, self._device)


class _Hashes:
    """Collects the hashes of a run's operands while they are read.

    Args:
        wanted: numbers of the operands, ascending.
    """

    def __init__(self, wanted: Sequence[int], run: Run) -> None:
        self._wanted = wanted
        self._blocks = list(run.blocks()) if wanted else []
        self._found: list[list[bytes]] = []

    def add(self, operand: int, vector: Vector) -> None:
        if operand in self._wanted:
            data = vector.data.data
            self._found.append([hash_block(data[block]) for block in self._blocks])

    def of_blocks(self) -> bytes:
        """For each block its operands' hashes, one after the other."""
        return b"".join(chain.from_iterable(zip(*self._found)))


def _unseen(operand: int, vector: Vector) -> None:
    """Of a scan nothing is hashed."""
