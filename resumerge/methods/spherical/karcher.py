"""The Karcher mean: the point of the sphere nearest to all models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

OPPOSITE = 1e-7
"""The smallest sine of an angle above 90 degrees; below it, the two points count as antipodal.

The arc between antipodal points has no direction.
"""


class Karcher(KernelMethod):
    """``mean(|x_i|) * argmin_u sum(angle(u, x_i)**2)``, u of length one, by gradient descent.

    Each step moves u along ``mean((θ_i / sin θ_i) * (x_i/|x_i| - cos θ_i * u))``. u stays in the
    span of the models. The iterations therefore need only the dot products between the models,
    which one pass over the tensor computes. A model whose norm is at most `tol` has no direction,
    and a model exactly opposite to u has no influence. If a model contains NaN or infinity, the
    result is ``mean(x_i)``.
    """

    name = "karcher"
    summary = "Riemannian centre of the models on the sphere; all models count equally"
    papers = (
        Paper(
            "Riemannian center of mass and mollifier smoothing",
            "https://doi.org/10.1002/cpa.3160300502",
        ),
    )
    parameters = (
        Parameter("max_iter", "largest number of steps", 10, "int", low=0),
        Parameter("tol", "stop when a step is shorter than this", 1e-5, low=0.0),
    )
    cost = BlockCost(1.0, scratch=0.08, per_input=0.035)

    def passes(self, tensor: TensorContext) -> int:
        return 2

    def is_copy(self, tensor: TensorContext) -> bool:
        return len(tensor.per_model) == 1

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> list[float]:
        """Return the factor on each model."""
        products = kernels.sum_blocks(scan(lambda x, run: kernels.gram(x, run)))
        max_iter, tol = int(tensor.params["max_iter"]), float(tensor.params["tol"])
        return list(map(float, factors(products, max_iter, tol)))

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        if len(inputs) == 1:
            kernels.round_to(inputs[0], out)
        else:
            kernels.weighted_sum(inputs, statistics, out)


def factors(products: np.ndarray, max_iter: int, tol: float) -> np.ndarray:
    """Return the factor on each model.

    Args:
        products: the dot products of each two models, float64, shape ``(n, n)`` for n models.
        max_iter: the largest number of steps.
        tol: lengths and angles below this count as zero; a shorter step ends the iteration.
    """
    result: np.ndarray
    if not np.isfinite(products).all():
        return np.full(len(products), 1.0 / len(products))
    norms = np.sqrt(np.diag(products))
    has_direction = norms > tol
    inverse_norms = np.where(has_direction, 1.0 / np.where(has_direction, norms, 1.0), 0.0)
    if not has_direction.any():
        result = inverse_norms * norms.mean()
        return result
    cosines = np.where(np.outer(has_direction, has_direction), products, 0.0) * np.outer(
        inverse_norms, inverse_norms
    )
    mean = has_direction / has_direction.sum()
    length = _length(cosines, mean)
    if length < tol or length == 0.0:
        mean = np.where(np.arange(len(mean)) == np.argmax(has_direction), 1.0, 0.0)
    else:
        mean = mean / length
    for _ in range(max_iter):
        cosine = np.clip(cosines @ mean, -1.0, 1.0)
        angle, sine = np.arccos(cosine), np.sqrt(1.0 - cosine**2)
        pulls_mean = (angle >= tol) & (sine >= np.where(cosine < 0.0, OPPOSITE, 0.0))
        pull_of_models = np.where(
            pulls_mean, np.where(sine > 0.0, angle / np.where(sine > 0, sine, 1.0), 1.0), 0
        )
        pull_of_models = pull_of_models / has_direction.sum()
        step = pull_of_models - (pull_of_models @ cosine) * mean
        length = _length(cosines, step)
        if length < tol or length == 0.0:
            break
        mean = math.cos(length) * mean + math.sin(length) / length * step
        mean = mean / _length(cosines, mean)
    result = mean * inverse_norms * norms.mean()
    return result


def _length(products: np.ndarray, factors: np.ndarray) -> float:
    square = float(factors @ products @ factors)
    return 0.0 if square <= 0.0 else math.sqrt(square)
