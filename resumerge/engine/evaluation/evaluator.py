"""Computing blocks: a pure function of the unit's tree of tensors and the blocks' numbers.

An evaluator reads the sources and changes neither ledger nor output. Another process or machine
that evaluates the same block gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.digests import HASH_BYTES
from resumerge.engine.evaluation.input_hashes import hashed_operands
from resumerge.engine.evaluation.kernel_backend import KernelBackend
from resumerge.engine.evaluation.method_failures import (
    failures_named,
    keeps_inputs,
    kept_inputs,
)
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.evaluation.shared_statistics import SharedStatistics
from resumerge.kernels.blocks import MapFunction, Scan
from resumerge.kernels.hashes import hash_block
from resumerge.planning import Estimate
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.reader import SourceReader
from resumerge.tensors import Merged, ScratchFile, Spilled, Step, Tensor
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.evaluation import (
    NO_HASHES,
    Evaluation,
    HeldValues,
    InputHashes,
    as_vector,
)

if TYPE_CHECKING:
    from resumerge.engine.evaluation.torch_backend import TorchBackend

Statistics = Mapping[Tensor, Any]
"""The facts about whole tensors that a unit's blocks need.

For each `Merged` it is what the reductions over its operands found, for each `Spilled` the file
that it lies in.
"""

KEPT_STATISTICS = 2
"""The number of tensors of a sweep whose statistics are kept for those after them: of the one that
is computed, and of the next."""

Pass = Callable[[Merged | Spilled, Callable[[range], Any], bool], Iterator[Any]]
"""A function that calls another one with the numbers of all blocks of a tensor, several at once.

It yields what the other one returns, in order. It is told whether only samples are read, since more
blocks are then one call.
"""


def serial_pass(
    tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
) -> Iterator[Any]:
    """Yield the results of a pass in the calling thread, block by block."""
    for index in range(tensor.blocks):
        yield function(range(index, index + 1))


class Evaluator:
    """An evaluator of blocks of the units of one plan. Many threads may use it at once.

    Every thread reads and computes in buffers of its own, which it uses again for the next blocks:
    memory depends on the depth of the trees, the number of operands and of threads, not on the size
    of a tensor. torch is imported only for what computes with it.

    Args:
        plan: the plan.
        estimate: its estimate: what is held from block to block, and whether torch is needed.
        reader: reads the sources' files.
        device: the device where torch computes.
        hashes: whether `compute` hashes what it reads from local models.
    """

    def __init__(
        self,
        plan: Plan,
        estimate: Estimate,
        reader: SourceReader,
        device: str = "cpu",
        *,
        hashes: bool = True,
    ) -> None:
        self._reader = reader
        self.device = device
        self._buffers = Buffers()
        self._held = HeldValues(estimate.memory.across_blocks)
        self._shared = SharedStatistics(KEPT_STATISTICS) if plan.variants else None
        self._prepare_thread = _prepared(estimate.time.needs_torch)
        self._backend = lru_cache(16)(self._choose_backend)
        self._hashed = lru_cache(16)(
            lambda number: _hashed_as_read(plan, plan.units[number]) if hashes else []
        )
        self._statistics_of_operands = lru_cache(1)(
            lambda number: self._statistics(plan.units[number].expression.children())
        )

    def start_thread(self) -> None:
        """Prepare the calling thread; every thread that evaluates calls this first."""
        self._prepare_thread()

    def evaluation_of(self, tensors: Iterable[Tensor]) -> Evaluation:
        """Return the evaluation that tensors are read with by the calling thread."""
        return self._evaluation(self._statistics(tensors))

    def evaluation_of_steps(self) -> Evaluation:
        """Return the evaluation that steps read tensors with."""
        return self._evaluation({})

    def hold(self, step: Step, result: np.ndarray) -> None:
        """Keep the result of a step for the units that are computed from it."""
        self._held.get(step, step.nbytes, lambda: result)

    def needs_statistics(self, unit: Unit) -> bool:
        """Return whether the unit's blocks depend on reductions over whole tensors."""
        return any(
            isinstance(node, Spilled) or (isinstance(node, Merged) and node.needs_statistics)
            for node in unit.expression.nodes()
        )

    def statistics(
        self, unit: Unit, run_pass: Pass = serial_pass, scratch: Scratch | None = None
    ) -> Statistics:
        """Return the statistics of whole tensors that the unit's blocks need.

        Args:
            unit: the unit.
            run_pass: goes over the blocks of the tensor that is next.
            scratch: where tensors are spilled. Without it they are computed again where they are
                read.
        """
        return self._statistics([unit.expression], run_pass, scratch)

    def compute(
        self,
        unit: Unit,
        indices: range,
        statistics: Statistics,
        measurements: list[np.ndarray] | None = None,
    ) -> tuple[memoryview, bytes]:
        """Return consecutive blocks of the output.

        Args:
            unit: the unit.
            indices: the blocks' numbers.
            statistics: what `statistics` returned.
            measurements: where the blocks' measurements go, if their changes are measured.

        Returns:
            the bytes, valid until this thread's next call; and the hashes of what they were
            computed from: for each block one for each of `hashed_operands`, none for a copy.

        Raises:
            Resumable: a method fails, or returns something else than a block.
        """
        hashes = {operand: bytearray() for operand in self._hashed(unit.index)}
        evaluation = self._evaluation(statistics, hashes, measurements, unit.block_elements)
        data = self._read(unit, indices, evaluation)
        return data, _by_block([*hashes.values()])

    def compute_alike(
        self,
        units: Sequence[Unit],
        indices: range,
        statistics: Statistics,
        *,
        measures: bool = False,
    ) -> Iterator[tuple[memoryview, bytes, list[np.ndarray] | None]]:
        """Yield consecutive blocks of several units, whose inputs are read once for all of them.

        Args:
            units: units that read the same (`planning.written.unit_order.read_alike`).
            indices: the blocks' numbers.
            statistics: of all units.
            measures: whether the blocks' changes are measured.

        Yields:
            for each unit what `compute` returns, valid until the next one is asked for, and the
            measurements.
        """
        merged = [unit.expression for unit in units if isinstance(unit.expression, Merged)]
        hashes = {operand: bytearray() for operand in self._hashed(units[0].index)}
        run = merged[0].run(indices)
        inputs = merged[0].inputs(self._evaluation({}, hashes), run)
        read = _by_block([*hashes.values()])
        for tensor in merged:
            measurements: list[np.ndarray] | None = [] if measures else None
            evaluation = self._evaluation(
                statistics, NO_HASHES, measurements, tensor.block_elements
            )
            out = evaluation.take("out", nbytes(tensor.dtype, run.length))
            tensor.compute(evaluation, inputs, run, as_vector(out, tensor.dtype))
            yield out.data, read, measurements

    def input_hashes(self, unit: Unit, index: int, operands: Sequence[int]) -> bytes:
        """Read some operands of a block again, and hash them as `compute` does.

        Args:
            unit: the unit.
            index: the block's number.
            operands: numbers of the operands, ascending.
        """
        if unit.numel == 0:
            return b""
        evaluation = self._evaluation(self._statistics_of_operands(unit.index))
        indices = range(index, index + 1)
        if not isinstance(unit.expression, Merged):
            return hash_block(self._read(unit, indices, evaluation))
        [(start, stop)], hashes = unit.run(indices).ranges(), []
        for number in operands:
            tensor = unit.expression.operands[number].unrounded
            data = evaluation.take("again", nbytes(tensor.dtype, stop - start))
            tensor.read(evaluation.inner(), start, stop, data)
            hashes.append(hash_block(data.data))
        return b"".join(hashes)

    def _read(self, unit: Unit, indices: range, evaluation: Evaluation) -> memoryview:
        if unit.numel == 0:
            return memoryview(b"")
        start = indices.start * unit.block_elements
        stop = min(indices.stop * unit.block_elements, unit.numel)
        return _elements(unit.expression, start, stop, evaluation)

    def _evaluation(
        self,
        statistics: Statistics,
        hashes: InputHashes = NO_HASHES,
        measurements: list[np.ndarray] | None = None,
        block_elements: int = 0,
    ) -> Evaluation:
        return Evaluation(
            self._reader,
            self._buffers,
            self._held,
            self._backend,
            statistics,
            hashes,
            measurements,
            block_elements,
            device=self.device,
        )

    def _statistics(
        self,
        tensors: Iterable[Tensor],
        run_pass: Pass = serial_pass,
        scratch: Scratch | None = None,
    ) -> Statistics:
        known: dict[Tensor, Any] = {}
        for node in dict.fromkeys(chain.from_iterable(tensor.nodes() for tensor in tensors)):
            if isinstance(node, Merged) and node.needs_statistics:
                compute = partial(self._statistics_of, node, dict(known), run_pass)
                if self._shared is None or run_pass is serial_pass:
                    known[node] = compute()
                else:
                    known[node] = self._shared.get(node.statistics_key, compute)
            elif isinstance(node, Spilled) and scratch is not None:
                file = self._spill(node, known, run_pass, scratch)
                known |= {node: file} if file else {}
        return known

    def _statistics_of(self, merged: Merged, known: Statistics, run_pass: Pass) -> Any:
        with failures_named(merged):
            scan = self._scan(merged, known, run_pass)
            return merged.merge_method.statistics(merged.context, scan)

    def _scan(self, merged: Merged, statistics: Statistics, run_pass: Pass) -> Scan[Any]:
        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            def evaluate(indices: range) -> list[Any]:
                return self._map_blocks(merged, statistics, indices, function, sample)

            for partials in run_pass(merged, evaluate, sample):
                yield from partials

        return scan

    def _map_blocks(
        self,
        merged: Merged,
        statistics: Statistics,
        indices: range,
        function: MapFunction[Any],
        sample: bool = False,
    ) -> list[Any]:
        """Return the partial results of `function` for consecutive blocks, or for samples of them.

        Args:
            merged: the tensor.
            statistics: the statistics of the tensors that it is computed from.
            indices: numbers of the blocks.
            function: a map function of the merge method.
            sample: whether only samples are read.

        Raises:
            Resumable: a method of a user fails, or keeps its inputs.
        """
        run, backend = merged.run(indices, sample=sample), self._backend(merged)
        inputs = merged.inputs(self._evaluation(statistics), run)
        with failures_named(merged):
            partials = backend.map(function, inputs, run)
        if backend.is_users and keeps_inputs(partials, backend.given(inputs, run)):
            raise kept_inputs(merged)
        return partials

    def _spill(
        self, spilled: Spilled, statistics: Statistics, run_pass: Pass, scratch: Scratch
    ) -> ScratchFile | None:
        """Return a file of the tensor's elements; None if the disk has no room for it."""
        file = scratch.begin()
        if file is None:
            return None
        evaluation, size = self._evaluation(statistics), spilled.block_elements

        def write(indices: range) -> bool:
            start, stop = indices.start * size, min(indices.stop * size, spilled.numel)
            data = _elements(spilled.tensor, start, stop, evaluation)
            return scratch.write(file, data, nbytes(spilled.dtype, start))

        return file if all(run_pass(spilled, write, False)) else None

    def _choose_backend(self, merged: Merged) -> KernelBackend | TorchBackend:
        if not merged.uses_torch:
            return KernelBackend(merged)
        from resumerge.engine.evaluation.torch_backend import TorchBackend

        return TorchBackend(merged, self._buffers, self.device)


def _prepared(needs_torch: bool) -> Callable[[], None]:
    """Return a function that prepares a thread for evaluating.

    torch is imported now, where a signal stops it.
    """
    if not needs_torch:
        return lambda: None
    from resumerge.engine.evaluation.torch_backend import use_one_thread

    return use_one_thread


def _hashed_as_read(plan: Plan, unit: Unit) -> list[int]:
    """Return the operands that are hashed as blocks are computed; none for a copy."""
    computed = isinstance(unit.expression, Merged) and unit.numel
    return list(hashed_operands(plan, unit)) if computed else []


def _elements(tensor: Tensor, start: int, stop: int, evaluation: Evaluation) -> memoryview:
    """Return the bytes of elements ``start:stop``, in a buffer that is used again."""
    out = evaluation.take("out", nbytes(tensor.dtype, stop - start))
    tensor.read(evaluation, start, stop, out)
    return out.data


def _by_block(hashes: Sequence[bytearray]) -> bytes:
    """Return the hashes of each block's operands, one block after the other."""
    if not hashes:
        return b""
    by_operand = np.frombuffer(b"".join(hashes), f"V{HASH_BYTES}").reshape(len(hashes), -1)
    return by_operand.T.tobytes()
