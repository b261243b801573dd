"""One model's tensors as they are."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import Block
from resumerge.methods.base import BlockCost, Method, Parameter, TensorContext


class Passthrough(Method):
    """``scale * x``; without a scale, the bytes of x."""

    name = "passthrough"
    summary = "one model's tensors unchanged, to stack layers of several models"
    parameters = (Parameter("scale", "factor for every element", 1.0, per_model=True),)
    most = 1
    torch_cost = BlockCost(1.0, scratch=0.0)
    compiled_cost = BlockCost(0.7, scratch=1.2)

    def is_copy(self, tensor: TensorContext) -> bool:
        return tensor.per_model[0]["scale"] == 1.0

    def compiled(self, tensor: TensorContext) -> bool:
        return True

    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        return kernels.weighted_sum(inputs, [float(tensor.per_model[0]["scale"])])
