"""Spherical linear interpolation between two models."""

from __future__ import annotations

import math
from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

NEARLY_PARALLEL = 0.9995
"""The largest ``|cos θ|`` of an arc; above it the sine is too small to divide by."""

SMALLEST_NORM = 1e-8


class Slerp(KernelMethod):
    """``sin((1-t)θ)/sin(θ) * a + sin(tθ)/sin(θ) * b``, θ the angle between a and b as vectors.

    a is the base model, b the other model. If a and b are nearly parallel, the result is
    ``(1-t) * a + t * b``.
    """

    name = "slerp"
    summary = "interpolation along the arc between two models"
    papers = (
        Paper(
            "Animating rotation with quaternion curves",
            "https://doi.org/10.1145/325334.325242",
        ),
    )
    parameters = (Parameter("t", "0 gives the base model, 1 the other one", example=0.5),)
    base = "required"
    fewest = 2
    most = 2
    cost = BlockCost(1.0, scratch=0.11, per_input=0.03)
    not_in_statistics = frozenset({"t"})

    def passes(self, tensor: TensorContext) -> int:
        return 2

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> float:
        """Return the cosine of the angle between the models."""
        base_index, other_index = self._roles(tensor)
        (base_square, product), (_, other_square) = kernels.sum_blocks(
            scan(lambda x, run: kernels.gram([x[base_index], x[other_index]], run))
        ).tolist()
        norms = [
            norm if norm > SMALLEST_NORM else 1.0
            for norm in (math.sqrt(base_square), math.sqrt(other_square))
        ]
        return float(product / (norms[0] * norms[1]))

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base_index, other_index = self._roles(tensor)
        factors = _factors(float(tensor.params["t"]), cosine=statistics)
        kernels.weighted_sum([inputs[base_index], inputs[other_index]], factors, out)

    def _roles(self, tensor: TensorContext) -> tuple[int, int]:
        assert tensor.base is not None
        return tensor.base, tensor.others[0]


def _factors(t: float, cosine: float) -> tuple[float, float]:
    """Return the factors on the base and on the other model."""
    if not abs(cosine) <= NEARLY_PARALLEL:
        return 1.0 - t, t
    angle = math.acos(cosine)
    return math.sin((1.0 - t) * angle) / math.sin(angle), math.sin(t * angle) / math.sin(angle)
