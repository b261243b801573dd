"""Iso-C: the sum of task vectors, with all singular values replaced by their mean."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from resumerge.kernels.blocks import Block
from resumerge.kernels.linalg.spectral import isotropic
from resumerge.methods.base import BlockCost, Method, Paper, Parameter, TensorContext

if TYPE_CHECKING:
    from torch import Tensor


class IsoC(Method):
    """``base + lambda * mean(s) * U V'``, where ``U diag(s) V'`` is ``sum(w_i * (x_i - base))``.

    This is the result for matrices. For other tensors, the result is
    ``base + lambda * sum(w_i * (x_i - base)) / n``. The singular value decomposition needs the
    whole matrix in memory, and time in proportion to ``rows * columns * min(rows, columns)``.
    """

    name = "iso_c"
    summary = "sum of task vectors with a flat spectrum, so that no task dominates"
    papers = (
        Paper(
            "No task left behind: isotropic model merging with common and task-specific subspaces",
            "https://arxiv.org/abs/2502.04959",
        ),
    )
    parameters = (
        Parameter("weight", "factor for this model's task vector", 1.0, per_model=True),
        Parameter("lambda", "factor for the combined task vector", 1.0),
    )
    base = "required"
    whole_tensor = True
    cost = BlockCost(200.0, scratch=5.5, per_input=0.2)
    combines_changes = True

    def row_elements(self, tensor: TensorContext) -> int | None:
        return tensor.numel if len(tensor.shape) == 2 else None

    def block(
        self, tensor: TensorContext, inputs: list[Tensor], block: Block, statistics: Any
    ) -> Tensor:
        base = tensor.base_of(inputs)
        if not tensor.others:
            return base
        weights = tensor.values("weight")
        weighted_vectors = [
            inputs[i].sub_(base).mul_(weight) for i, weight in zip(tensor.others, weights)
        ]
        total = reduce(lambda a, b: a.add_(b), weighted_vectors)
        if len(tensor.shape) == 2:
            total = isotropic(total.view(tensor.shape)).flatten()
        else:
            total.div_(len(weights))
        return base.add_(total, alpha=float(tensor.params["lambda"]))
