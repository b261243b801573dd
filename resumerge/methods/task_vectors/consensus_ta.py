"""Consensus merging: what matters to several tasks."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import Block
from resumerge.methods.base import BlockCost, Method, Paper, Parameter, TensorContext


class ConsensusTaskArithmetic(Method):
    """``base + lambda * [sum(m_i) >= agree] * sum(y_i)`` with ``y_i = w_i * (x_i - base)``.

    ``m_i = |y_i| >= threshold_i * |sum(y_j) - y_i|``: the element matters to model i, compared with
    the other models' changes. Elements that matter to fewer than `agree` models (or to fewer than
    all, where there are not so many) stay the base's.
    """

    name = "consensus_ta"
    summary = "task arithmetic where an element matters to several of the models"
    papers = (
        Paper(
            "Localizing task information for improved model merging and compression",
            "https://arxiv.org/abs/2405.07813",
        ),
    )
    parameters = (
        Parameter("weight", "factor for this model's task vector", per_model=True),
        Parameter("lambda", "factor for the combined task vector", 1.0),
        Parameter(
            "threshold",
            "an element matters if its change is at least this share of the other models' change",
            0.4,
            per_model=True,
            low=0.0,
        ),
        Parameter("agree", "number of models that an element must matter to", 2, "int", low=0),
    )
    base = "required"
    torch_cost = BlockCost(5.7, scratch=11.0, per_input=0.5)
    compiled_cost = BlockCost(0.5, scratch=0.5, per_input=0.16)

    def compiled(self, tensor: TensorContext) -> bool:
        return True

    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base = inputs[tensor.base]  # type: ignore[index]
        if not tensor.others:
            return base
        given = [tensor.per_model[i] for i in tensor.others]
        return kernels.add_voted_sum(
            base,
            kernels.subtract_base(inputs, tensor.base),
            tensor.values("weight"),
            tensor.values("threshold"),
            min(int(tensor.params["agree"]), len(given)),
            float(tensor.params["lambda"]),
        )
