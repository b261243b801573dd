"""SCE: select varying elements, calculate weights, and erase elements of minority sign."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan, scan_mapped
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

SMALLEST_ENERGY = 1e-6


class Sce(KernelMethod):
    """``base + sum(a_i * W_i * d_i) / sum(a_i * W_i)``, where the d_i are the task vectors.

    Select: with `select_topk` below 1, only the elements whose d_i vary most between the models are
    kept: the share `select_topk` of the elements with any variance. Calculate:
    ``W_i = mean(d_i**2)`` over the tensor, divided by its sum over the models. If that sum is
    nearly zero or not finite, all W_i are equal. Erase: a_i is 1 where d_i has the sign of
    ``sum(d_i)``, else 0; the sign of a zero sum is plus.
    """

    name = "sce"
    summary = "elements that vary most, weighted by each model's energy, where signs agree"
    papers = (
        Paper("FuseChat: knowledge fusion of chat models", "https://arxiv.org/abs/2408.07990"),
    )
    parameters = (
        Parameter(
            "select_topk",
            "share of the varying elements that is kept",
            1.0,
            low=0.0,
            high=1.0,
            saturates=True,
        ),
        Parameter("int8_mask", "accepted, but has no effect", False, "bool"),
    )
    base = "required"
    cost = BlockCost(4.0, scratch=1.7, per_input=0.2)
    combines_changes = True

    def statistics_bytes(self, tensor: TensorContext) -> int:
        if not self._selects(tensor):
            return 0
        # Few variances are equal, even for 16-bit models: each is a sum of several squares.
        return kernels.selection_bytes(tensor.numel, [[float(tensor.params["select_topk"])]])

    def passes(self, tensor: TensorContext) -> int:
        return 5 if self._selects(tensor) else 2

    def samples(self, tensor: TensorContext) -> int:
        return int(self._selects(tensor))

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> tuple[Any, list[float]]:
        """Return the selection of the kept elements (None for all), and each model's weight."""
        if not tensor.others:
            return None, []
        selection = self._selection(tensor, scan) if self._selects(tensor) else None

        def squares(x: list[Vector], run: BlockRun) -> np.ndarray:
            deltas = kernels.subtract_base(x, tensor.base)
            return kernels.sums_of_squares(deltas, self._mask(deltas, run, selection), run)

        energies = (kernels.sum_blocks(scan(squares)) / tensor.numel).tolist()
        total = sum(energies)
        if not SMALLEST_ENERGY <= total < math.inf:
            return selection, [1.0 / len(energies)] * len(energies)
        return selection, [energy / total for energy in energies]

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base = tensor.base_of(inputs)
        if not tensor.others:
            kernels.round_to(base, out)
            return
        selection, weights = statistics
        deltas = kernels.subtract_base(inputs, tensor.base)
        mask = self._mask(deltas, run, selection)
        kernels.add_majority_mean(base, deltas, mask, weights, out)

    def _selects(self, tensor: TensorContext) -> bool:
        return float(tensor.params["select_topk"]) < 1.0

    def _selection(self, tensor: TensorContext, scan: Scan[Any]) -> Any:
        def variances(x: list[Vector]) -> Any:
            return kernels.variance(kernels.subtract_base(x, tensor.base))

        varying_count = sum(scan(lambda x, run: kernels.count_nonzero(variances(x))))
        return kernels.select_largest(
            {0: int(float(tensor.params["select_topk"]) * varying_count)},
            tensor.numel,
            scan_mapped(scan, lambda x, run: {0: variances(x)}),
        )[0]

    def _mask(self, deltas: list[Vector], run: BlockRun, selection: Any) -> np.ndarray | None:
        """Return the mask of the kept elements, uint8 of 0 and 1; None if all elements are kept."""
        if selection is None:
            return None
        mask: np.ndarray = selection.mask(kernels.variance(deltas), run)
        return mask
