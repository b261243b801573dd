"""Consensus merging: changes that matter to several tasks are kept."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector


class ConsensusTaskArithmetic(KernelMethod):
    """``base + lambda * [sum(m_i) >= agree] * sum(y_i)`` with ``y_i = w_i * (x_i - base)``.

    ``m_i = |y_i| >= threshold_i * |sum(y_j) - y_i|``: an element matters to model i if its change
    is large enough compared with the other models' changes. An element that matters to fewer than
    `agree` models keeps the base's value; `agree` is limited to the number of models.
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
        Parameter("weight", "factor for this model's task vector", per_model=True, example=1.0),
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
    cost = BlockCost(0.5, scratch=0.06, per_input=0.03)
    combines_changes = True

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base = tensor.base_of(inputs)
        if not tensor.others:
            kernels.round_to(base, out)
            return
        per_model = [tensor.per_model[i] for i in tensor.others]
        kernels.add_voted_sum(
            base,
            kernels.subtract_base(inputs, tensor.base),
            tensor.values("weight"),
            tensor.values("threshold"),
            min(int(tensor.params["agree"]), len(per_model)),
            float(tensor.params["lambda"]),
            out,
        )
