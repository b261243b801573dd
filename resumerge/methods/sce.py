"""SCE: select, calculate, erase."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.methods import kernels
from resumerge.methods.method import Block, Method, Paper, Parameter, Scan, Work, viewed

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_ENERGY, SMALLEST_DIVISOR = 1e-6, 1e-6


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

    def held_bytes(self, work: Work) -> int:
        if not self._selects(work):
            return 0
        return kernels.selection_bytes(work.numel, [[float(work.params["select_topk"])]])

    def reads(self, work: Work) -> int:
        return 5 if self._selects(work) else 2

    def statistics(self, work: Work, scan: Scan[Any]) -> tuple[Any, list[float]]:
        """Which elements are kept (None for all), and the weight of each model."""
        if not work.others:
            return None, []
        selection = self._selection(work, scan) if self._selects(work) else None
        squares = scan(lambda x, block: self._squares(self._deltas(work, x, block, selection)))
        energies = (kernels.summed(squares) / work.numel).tolist()
        total = sum(energies)
        if not SMALLEST_ENERGY <= total < math.inf:
            return selection, [1.0 / len(energies)] * len(energies)
        return selection, [energy / total for energy in energies]

    def block(self, work: Work, inputs: list[Tensor], block: Block, statistics: Any) -> Tensor:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        selection, weights = statistics
        deltas = self._deltas(work, inputs, block, selection)
        signs = kernels.majority(kernels.plain_sum([deltas[0].clone(), *deltas[1:]]))
        mixed = kernels.zeros_like(signs)
        divisor = kernels.zeros_like(signs)
        for delta, weight in zip(deltas, weights):
            kept = kernels.agreeing(delta, signs)
            mixed.add_(kept, alpha=weight)
            divisor.add_(kept.sign_(), alpha=weight)
        return base.addcmul_(mixed.div_(divisor.clamp_min_(SMALLEST_DIVISOR)), signs)

    def _selects(self, work: Work) -> bool:
        return float(work.params["select_topk"]) < 1.0

    def _selection(self, work: Work, scan: Scan[Any]) -> Any:
        def variances(x: list[Tensor]) -> Tensor:
            return kernels.variance(kernels.less_base(work, x))

        varying = sum(scan(lambda x, block: int(variances(x).count_nonzero())))
        return kernels.select_largest(
            {0: int(float(work.params["select_topk"]) * varying)},
            viewed(scan, lambda x, block: {0: variances(x)}),
        )[0]

    def _deltas(
        self, work: Work, inputs: list[Tensor], block: Block, selection: Any
    ) -> list[Tensor]:
        deltas = kernels.less_base(work, inputs)
        if selection is not None:
            kept = selection.mask(kernels.variance(deltas), block)
            for delta in deltas:
                kernels.keep_only(delta, kept)
        return deltas

    def _squares(self, deltas: list[Tensor]) -> np.ndarray:
        return np.array([kernels.gram([delta])[0, 0] for delta in deltas])
