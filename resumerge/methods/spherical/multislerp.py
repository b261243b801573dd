"""Spherical interpolation between any number of models, in the tangent space of their mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector


class MultiSlerp(KernelMethod):
    """``|x| * exp_m(sum(w_i * log_m(u_i)))`` to first order, with ``u_i = x_i / |x_i|``.

    m is the direction of ``sum(w_i * u_i)``. The weighted sum of the tangents ``u_i - (u_i·m) m``
    is followed from m along the sphere, and the point there is scaled by
    ``|x| = sum(w_i * |x_i|)``. The result lies in the span of the models. The factor on each model
    therefore follows from the dot products between the models, which one pass over the tensor
    computes. If the unit vectors cancel, or one contains NaN or infinity, the result is
    ``sum(w_i * x_i)``. With a base model, the x_i are task vectors, and the base is added last.
    """

    name = "multislerp"
    summary = "interpolation on the sphere between any number of models, or of task vectors"
    papers = (
        Paper(
            "Spherical averages and applications to spherical splines and interpolation",
            "https://doi.org/10.1145/502122.502124",
        ),
    )
    parameters = (
        Parameter("weight", "relative weight of this model", per_model=True, example=1.0),
        Parameter("normalize_weights", "divide the weights by their sum", True, "bool"),
        Parameter("eps", "lengths below this count as zero", 1e-8, low=0.0),
    )
    base = "optional"
    cost = BlockCost(1.0, scratch=0.56, per_input=0.035)
    combines_changes = True

    def passes(self, tensor: TensorContext) -> int:
        return 2 if len(tensor.others) > 1 else 1

    def is_copy(self, tensor: TensorContext) -> bool:
        return len(tensor.per_model) == 1

    def validate(self, tensor: TensorContext) -> str | None:
        weights = tensor.values("weight")
        if len(weights) > 1 and tensor.params["normalize_weights"] and sum(weights) == 0.0:
            return "weights that do not sum to zero, or normalize_weights: false"
        return None

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> list[float]:
        """Return the factor on each model."""
        products = kernels.sum_blocks(
            scan(lambda x, run: kernels.gram(kernels.subtract_base(x, tensor.base), run))
        )
        weights = np.array(tensor.values("weight"))
        if tensor.params["normalize_weights"]:
            weights = weights / weights.sum()
        return list(map(float, factors(products, weights, float(tensor.params["eps"]))))

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        if len(tensor.others) == 1:
            kernels.round_to(inputs[tensor.others[0]], out)
            return
        task_vectors = kernels.subtract_base(inputs, tensor.base)
        weighted_terms = kernels.weighted_sum(
            task_vectors, statistics, out if tensor.base is None else None
        )
        if tensor.base is not None:
            kernels.add_sum(inputs[tensor.base], [weighted_terms], 1.0, out)


def factors(products: np.ndarray, weights: np.ndarray, eps: float) -> np.ndarray:
    """Return the factor on each model.

    Args:
        products: the dot products of each two models, or task vectors; float64, shape ``(n, n)``.
        weights: the weight of each model, float64.
        eps: the length below which a sum counts as zero; it is added to every norm.
    """
    if not np.isfinite(products).all():
        return weights
    norms = np.sqrt(np.diag(products))
    padded_norms = norms + eps
    inverse_norms = np.where(
        padded_norms == 0.0, 0.0, 1.0 / np.where(padded_norms == 0.0, 1.0, padded_norms)
    )
    cosines = products * np.outer(inverse_norms, inverse_norms)
    length = _length(cosines, weights)
    if length < eps or length == 0.0:
        return weights
    mean = weights / length
    tangent = weights - weights @ (cosines @ mean) * mean
    step = _length(cosines, tangent) + eps
    mixed_factors = mean * math.cos(step) + tangent * (math.sin(step) / step if step > 0.0 else 1.0)
    result: np.ndarray = mixed_factors * inverse_norms * (weights @ norms)
    return result


def _length(products: np.ndarray, factors: np.ndarray) -> float:
    square = float(factors @ products @ factors)
    return 0.0 if square <= 0.0 else math.sqrt(square)
