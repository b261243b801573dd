"""SCE: select, calculate, erase."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from resumerge import kernels
from resumerge.methods.base import Block, Method, Paper, Parameter, Scan, TensorContext, viewed

SMALLEST_ENERGY = 1e-6


class Sce(Method):
    """``base + sum(a_i * W_i * d_i) / sum(a_i * W_i)``, d the task vectors.

    Select: with `select_topk` below 1, only the elements whose d vary most between the models are
    kept, ``select_topk`` of those that vary at all. Calculate: ``W_i = mean(d_i**2)`` over the
    tensor, divided by its sum over the models; equal shares where that sum is nearly zero or not
    finite. Erase:
    a_i is 1 where d_i has the sign of ``sum(d_i)`` (plus, for a sum of zero), else 0.
    """

    name = "sce"
    summary = "elements that vary most, weighted by each model's energy, where signs agree"
    papers = (
        Paper("FuseChat: knowledge fusion of chat models", "https://arxiv.org/abs/2408.07990"),
    )
    parameters = (
        Parameter("select_topk", "share of the varying elements kept", 1.0, low=0.0, high=1.0),
        Parameter("int8_mask", "accepted; masks never take more than a byte here", False, "bool"),
    )
    base = "required"

    def held_bytes(self, work: TensorContext) -> int:
        if not self._selects(work):
            return 0
        # Of variances, sums of several squares, few are equal even where the numbers have 16 bits.
        return kernels.selection_bytes(work.numel, [[float(work.params["select_topk"])]])

    def compiled(self, work: TensorContext) -> bool:
        return True

    def passes(self, work: TensorContext) -> int:
        return 5 if self._selects(work) else 2

    def statistics(self, work: TensorContext, scan: Scan[Any]) -> tuple[Any, list[float]]:
        """Which elements are kept (None for all), and the weight of each model."""
        if not work.others:
            return None, []
        selection = self._selection(work, scan) if self._selects(work) else None

        def squares(x: list[Any], block: Block) -> np.ndarray:
            deltas = kernels.less_base(work, x)
            return kernels.squares(deltas, self._mask(deltas, block, selection))

        energies = (kernels.summed(scan(squares)) / work.numel).tolist()
        total = sum(energies)
        if not SMALLEST_ENERGY <= total < math.inf:
            return selection, [1.0 / len(energies)] * len(energies)
        return selection, [energy / total for energy in energies]

    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        selection, weights = statistics
        deltas = kernels.less_base(work, inputs)
        mask = self._mask(deltas, block, selection)
        return kernels.weighted_majority(base, deltas, mask, weights)

    def _selects(self, work: TensorContext) -> bool:
        return float(work.params["select_topk"]) < 1.0

    def _selection(self, work: TensorContext, scan: Scan[Any]) -> Any:
        def variances(x: list[Any]) -> Any:
            return kernels.variance(kernels.less_base(work, x))

        varying = sum(scan(lambda x, block: kernels.count_nonzero(variances(x))))
        return kernels.select_largest(
            {0: int(float(work.params["select_topk"]) * varying)},
            work.numel,
            viewed(scan, lambda x, block: {0: variances(x)}),
        )[0]

    def _mask(self, deltas: list[Any], block: Block, selection: Any) -> np.ndarray | None:
        """1 for the elements that are kept, else 0; None where all are."""
        if selection is None:
            return None
        return cast(np.ndarray, selection.mask(kernels.variance(deltas), block))
