"""Passthrough: copies of one model's tensors, optionally scaled."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, KernelMethod, Parameter, TensorContext
from resumerge.native import Vector


class Passthrough(KernelMethod):
    """``scale * x``; with a scale of 1, the bytes of x unchanged."""

    name = "passthrough"
    summary = "one model's tensors unchanged, to stack layers of several models"
    parameters = (Parameter("scale", "factor for every element", 1.0, per_model=True),)
    most = 1
    cost = BlockCost(0.7, scratch=0.4)
    combines_changes = True
    is_weighted_sum = True

    def is_copy(self, tensor: TensorContext) -> bool:
        return tensor.per_model[0]["scale"] == 1.0

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        kernels.weighted_sum(inputs, [float(tensor.per_model[0]["scale"])], out)
