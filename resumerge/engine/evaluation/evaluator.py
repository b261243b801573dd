"""The computation of units' blocks, a pure function of a unit's expression and the block numbers.

An evaluator reads the sources, and changes neither ledger nor output. Every process, on every
machine, computes the same bits of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from resumerge.digests import HASH_BYTES
from resumerge.engine.evaluation.input_hashes import hashed_operands
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.evaluation.shared_statistics import SharedStatistics
from resumerge.engine.evaluation.tensor_evaluator import (
    Pass,
    Preparation,
    TensorEvaluator,
    elements_of,
    serial_pass,
)
from resumerge.kernels.hashes import hash_block
from resumerge.planning import Estimate
from resumerge.planning.plan import Plan, Unit
from resumerge.sources.reader import SourceReader
from resumerge.tensors import Merged, Spilled, Step
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.evaluation import NO_HASHES, Evaluation, as_vector

KEPT_STATISTICS = 2
"""The number of tensors of a sweep whose statistics are kept for other variants. These are the
tensor that is being computed, and the next one."""


class Evaluator(TensorEvaluator):
    """An evaluator of the blocks of one plan's units. Several threads may use it at once.

    Args:
        plan: the plan whose units are evaluated; units of other plans must not be passed.
        estimate: the estimate of the plan, which contains the bytes that are held from block to
            block, and whether torch is needed.
        reader: the reader of the sources' files, which the caller closes.
        device: the device on which torch computes, as `device_for` returns it.
        hashes: whether `compute` hashes the operands that are read from local models.
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
        super().__init__(
            reader,
            held_bytes=estimate.memory.across_blocks,
            needs_torch=estimate.time.needs_torch,
            device=device,
            shared=SharedStatistics(KEPT_STATISTICS) if plan.variants else None,
        )
        self._hashed = lru_cache(16)(
            lambda number: _hashed_while_read(plan, plan.units[number]) if hashes else []
        )
        self._preparation_of_operands = lru_cache(1)(
            lambda number: self._prepare(plan.units[number].expression.children())
        )

    def evaluation_of_steps(self) -> Evaluation:
        """Return the evaluation that steps read tensors with."""
        return self._evaluation({})

    def hold(self, step: Step, result: np.ndarray) -> None:
        """Keep the result of a step in memory for the units that are computed from it."""
        self._held.get(step, step.nbytes, lambda: result)

    def needs_preparation(self, unit: Unit) -> bool:
        """Return whether the unit's blocks need statistics or scratch files of whole tensors."""
        return any(
            isinstance(node, Spilled) or (isinstance(node, Merged) and node.needs_statistics)
            for node in unit.expression.nodes()
        )

    def prepare(
        self, unit: Unit, run_pass: Pass = serial_pass, scratch: Scratch | None = None
    ) -> Preparation:
        """Compute the statistics and fill the scratch files that the unit's blocks need.

        Args:
            unit: a unit of the plan, whose blocks need the result.
            run_pass: runs the necessary passes over the blocks of tensors.
            scratch: the scratch files for spilled tensors. If None, a spilled tensor is computed
                again whenever it is read.
        """
        return self._prepare([unit.expression], run_pass, scratch)

    def compute(
        self,
        unit: Unit,
        indices: range,
        preparation: Preparation,
        measurements: list[np.ndarray] | None = None,
    ) -> tuple[memoryview, bytes]:
        """Compute consecutive blocks of the output.

        Args:
            unit: a unit of the plan, prepared if it needs that.
            indices: the numbers of the blocks within the unit.
            preparation: the result of `prepare` for this unit; empty if it needs none.
            measurements: a list to which the blocks' measurements are appended; None not to
                measure.

        Returns:
            (bytes, input hashes). The bytes are valid until this thread's next call. The input
            hashes are, block after block, a hash for each of `hashed_operands`; empty for a copied
            unit.

        Raises:
            Resumable: a user's method fails, or does not return a valid block.
        """
        hashes_by_operand = {operand: bytearray() for operand in self._hashed(unit.number)}
        evaluation = self._evaluation(
            preparation, hashes_by_operand, measurements, unit.block_elements
        )
        block_bytes = self._read(unit, indices, evaluation)
        return block_bytes, _by_block([*hashes_by_operand.values()])

    def compute_together(
        self,
        units: Sequence[Unit],
        indices: range,
        preparation: Preparation,
        *,
        measures: bool = False,
    ) -> Iterator[tuple[memoryview, bytes, list[np.ndarray] | None]]:
        """Compute consecutive blocks of several units that read the same inputs.

        The inputs are read only once.

        Args:
            units: units that read the same ranges (`planning.written.unit_order.have_same_reads`).
            indices: the numbers of the blocks, within each unit.
            preparation: the preparations of all units, in one mapping.
            measures: whether to measure how the blocks differ from the models.

        Yields:
            (bytes, input hashes, measurements) of each unit; see `compute`. The bytes are valid
            until the next unit is computed. The measurements are None without `measures`.
        """
        merged_tensors = [unit.expression for unit in units if isinstance(unit.expression, Merged)]
        hashes_by_operand = {operand: bytearray() for operand in self._hashed(units[0].number)}
        block_run = merged_tensors[0].block_run(indices)
        inputs = merged_tensors[0].inputs(self._evaluation({}, hashes_by_operand), block_run)
        input_hashes = _by_block([*hashes_by_operand.values()])
        for tensor in merged_tensors:
            measurements: list[np.ndarray] | None = [] if measures else None
            evaluation = self._evaluation(
                preparation, NO_HASHES, measurements, tensor.block_elements
            )
            out = evaluation.take("out", nbytes(tensor.dtype, block_run.length))
            tensor.compute(evaluation, inputs, block_run, as_vector(out, tensor.dtype))
            yield out.data, input_hashes, measurements

    def input_hashes(self, unit: Unit, index: int, operands: Sequence[int]) -> bytes:
        """Read operands of a block again, and hash them as `compute` does.

        Args:
            unit: a unit of the plan; if it is not a `Merged`, the block itself is hashed.
            index: the number of the block.
            operands: the numbers of the operands, ascending.

        Returns:
            the hashes, 16 bytes each, in the order of `operands`.
        """
        if unit.numel == 0:
            return b""
        evaluation = self._evaluation(self._preparation_of_operands(unit.number))
        indices = range(index, index + 1)
        if not isinstance(unit.expression, Merged):
            return hash_block(self._read(unit, indices, evaluation))
        [(start, stop)], block_hashes = unit.block_run(indices).ranges(), []
        for number in operands:
            tensor = unit.expression.operands[number].unrounded
            operand_bytes = evaluation.take("again", nbytes(tensor.dtype, stop - start))
            tensor.read(evaluation.inner(), start, stop, operand_bytes)
            block_hashes.append(hash_block(operand_bytes.data))
        return b"".join(block_hashes)

    def _read(self, unit: Unit, indices: range, evaluation: Evaluation) -> memoryview:
        if unit.numel == 0:
            return memoryview(b"")
        start = indices.start * unit.block_elements
        stop = min(indices.stop * unit.block_elements, unit.numel)
        return elements_of(unit.expression, start, stop, evaluation)


def _hashed_while_read(plan: Plan, unit: Unit) -> list[int]:
    """Return the numbers of the operands that `compute` hashes; empty for a copied unit."""
    is_computed = isinstance(unit.expression, Merged) and unit.numel
    return list(hashed_operands(plan, unit)) if is_computed else []


def _by_block(hashes: Sequence[bytearray]) -> bytes:
    """Reorder hashes by block.

    Args:
        hashes: for each operand, the hashes of all its blocks.

    Returns:
        for each block in order, the hashes of all operands.
    """
    if not hashes:
        return b""
    by_operand = np.frombuffer(b"".join(hashes), f"V{HASH_BYTES}").reshape(len(hashes), -1)
    return by_operand.T.tobytes()
