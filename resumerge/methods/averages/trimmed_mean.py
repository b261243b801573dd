"""Trimmed mean and median, element by element."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector


class TrimmedMean(KernelMethod):
    """The mean of each element's values without the g lowest and the g highest.

    For n models, ``g = min(int(trim * n), (n - 1) // 2)``. With ``trim: 0.5`` the result is the
    median, with 0 the mean. If one model's value is NaN, the result is NaN.
    """

    name = "trimmed_mean"
    summary = "median of each element, or mean without the extreme values: robust to one bad model"
    papers = (
        Paper(
            "Byzantine-robust distributed learning: towards optimal statistical rates",
            "https://arxiv.org/abs/1803.01498",
        ),
    )
    parameters = (
        Parameter(
            "trim", "share of values left out at each end; 0.5: the median", 0.5, low=0.0, high=0.5
        ),
    )
    cost = BlockCost(0.75, scratch=0.02, per_input=0.04)

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        count = len(inputs)
        cut_at_each_end = min(int(float(tensor.params["trim"]) * count), (count - 1) // 2)
        kernels.trimmed_mean(inputs, cut_at_each_end, out)
