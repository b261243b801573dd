"""One model's tensors as they are."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.methods.base import Block, Method, Parameter, TensorContext


class Passthrough(Method):
    """``scale * x``; without a scale, the bytes of x."""

    name = "passthrough"
    summary = "one model's tensors as they are, to stack layers of several models"
    parameters = (Parameter("scale", "factor on every element", 1.0, per_model=True),)
    most = 1

    def copies(self, work: TensorContext) -> bool:
        return work.per_model[0]["scale"] == 1.0

    def compiled(self, work: TensorContext) -> bool:
        return True

    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        return kernels.weighted_sum(inputs, [float(work.per_model[0]["scale"])])
