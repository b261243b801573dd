"""Calls methods that compute with the kernels: a run of blocks at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from resumerge.engine.execute.evaluation.method_failures import described, wrong_result
from resumerge.kernels import Run
from resumerge.kernels.blocks import sampled
from resumerge.methods import Block, KernelMethod, TensorContext
from resumerge.native import Vector
from resumerge.planning.plan import Unit


class KernelBackend:
    """Computes the blocks of one unit."""

    def __init__(self, unit: Unit, method: KernelMethod, tensor: TensorContext) -> None:
        self._unit, self._method, self._tensor = unit, method, tensor

    def map(
        self,
        function: Callable[[list[Vector], Run], Any],
        inputs: list[Vector],
        blocks: Sequence[Block],
        sample: bool,
    ) -> list[Any]:
        """The partial results of a map function of `statistics`, in the order of the blocks."""
        size = sampled(self._unit.block_elements) if sample else self._unit.block_elements
        return [function(inputs, Run(blocks[0].index, size, len(inputs[0])))]

    def compute(
        self, inputs: list[Vector], blocks: Sequence[Block], statistics: Any, out: Vector
    ) -> None:
        """Compute blocks into `out`, rounded to its type.

        Raises:
            Resumable: the method returned its result.
        """
        run = Run(blocks[0].index, self._unit.block_elements, len(out))
        result: Any = self._method.compute(self._tensor, inputs, run, statistics, out)
        if result is not None:
            raise wrong_result(self._unit, blocks, "None: results go to `out`", described(result))
