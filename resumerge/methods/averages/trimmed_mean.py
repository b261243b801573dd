"""Trimmed mean and median, element by element."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import Block
from resumerge.methods.base import BlockCost, Method, Paper, Parameter, TensorContext


class TrimmedMean(Method):
    """The mean of each element's values without the g lowest and the g highest.

    ``g = min(int(trim * n), (n - 1) // 2)`` of n models; with ``trim: 0.5`` the result is the
    median, with 0 the mean. NaN in one model gives NaN.
    """

    name = "trimmed_mean"
    summary = "median of each element, or mean without extremes: one bad model does no harm"
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
    torch_cost = BlockCost(3.8, scratch=0.0, per_input=6.0)
    compiled_cost = BlockCost(0.75, scratch=1.0, per_input=0.2)

    def compiled(self, tensor: TensorContext) -> bool:
        return True

    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        count = len(inputs)
        cut = min(int(float(tensor.params["trim"]) * count), (count - 1) // 2)
        return kernels.trimmed_mean(inputs, cut)
