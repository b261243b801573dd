"""One model's tensors as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resumerge.methods.method import Block, Method, Parameter, Work

if TYPE_CHECKING:
    from torch import Tensor


class Passthrough(Method):
    """``scale * x``; without a scale, the bytes of x."""

    name = "passthrough"
    summary = "one model's tensors as they are, to stack layers of several models"
    parameters = (Parameter("scale", "factor on every element", 1.0, per_model=True),)
    most = 1

    def copies(self, work: Work) -> bool:
        return work.per_model[0]["scale"] == 1.0

    def block(self, work: Work, inputs: list[Tensor], block: Block, statistics: Any) -> Tensor:
        return inputs[0].mul_(float(work.per_model[0]["scale"]))
