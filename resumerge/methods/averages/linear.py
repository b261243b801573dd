"""The weighted average."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

CANCELLING_SHARE = 1e-8
"""Weights cancel if ``|sum(w)| / sum(|w|)`` is at most this."""


class Linear(KernelMethod):
    """``sum(w_i * x_i)``, divided by ``sum(w_i)`` where `normalize` is on."""

    name = "linear"
    summary = "weighted average of the models"
    papers = (
        Paper(
            "Model soups: averaging weights of multiple fine-tuned models improves accuracy "
            "without increasing inference time",
            "https://arxiv.org/abs/2203.05482",
        ),
    )
    parameters = (
        Parameter("weight", "relative weight of this model", per_model=True, example=1.0),
        Parameter("normalize", "divide by the sum of the weights", True, "bool"),
    )
    cost = BlockCost(0.5, scratch=0.05, per_input=0.035)
    combines_changes = True
    is_weighted_sum = True

    def validate(self, tensor: TensorContext) -> str | None:
        weights = tensor.values("weight")
        total, size = sum(weights), sum(map(abs, weights))
        if tensor.params["normalize"] and abs(total) <= CANCELLING_SHARE * size:
            return "weights that do not sum to zero, or normalize: false"
        return None

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        weights = tensor.values("weight")
        total = sum(weights) if tensor.params["normalize"] else 1.0
        kernels.weighted_sum(inputs, [weight / total for weight in weights], out)
