"""Interpolation along the arc between two vectors: whole tensors, their rows, or their columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

SMALLEST_NORM = 1e-7
SMALLEST_WEIGHT_SUM = 1e-6


class NuSlerp(KernelMethod):
    """``sin((1-t)θ)/sin(θ) * a + sin(tθ)/sin(θ) * b``, with ``t = w_b / (w_a + w_b)``.

    θ is the angle between a and b. With `nuslerp_flatten`, the whole tensor is one vector. Without
    it, each vector along the last dimension has its own θ or, with `nuslerp_row_wise`, each vector
    along the first. If the cosine of θ is 1 or -1 in float32, or NaN, as for values that are NaN
    or infinite, the result is ``(1-t) * a + t * b``. With a base model, a and b are task vectors,
    and the base is added to the result.
    """

    name = "nuslerp"
    summary = "interpolation along the arc between two models, or between their task vectors"
    papers = (
        Paper("Animating rotation with quaternion curves", "https://doi.org/10.1145/325334.325242"),
    )
    parameters = (
        Parameter("weight", "relative weight of this model", per_model=True, example=1.0),
        Parameter("nuslerp_flatten", "one angle for the whole tensor", True, "bool"),
        Parameter(
            "nuslerp_row_wise",
            "without nuslerp_flatten: an angle for each vector along the first dimension, "
            "not the last",
            False,
            "bool",
        ),
    )
    base = "optional"
    fewest = 2
    most = 2
    cost = BlockCost(1.0, scratch=0.56, per_input=0.035)
    combines_changes = True

    def passes(self, tensor: TensorContext) -> int:
        return 1 if self._by_row(tensor) else 2

    def row_elements(self, tensor: TensorContext) -> int | None:
        if self._by_row(tensor):
            return tensor.shape[-1]
        return tensor.numel // max(1, tensor.shape[0]) if self._by_column(tensor) else None

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> tuple[Any, Any]:
        """Return the factors on the two models: a number each, or an array with one per column."""
        if self._by_column(tensor):
            row = self._row(tensor)
            products = scan(
                lambda x, run: kernels.column_gram(kernels.subtract_base(x, tensor.base), row, run)
            )
        else:
            products = scan(lambda x, run: kernels.gram(kernels.subtract_base(x, tensor.base), run))
        return self._factors(tensor, kernels.sum_blocks(products))

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        pair = kernels.subtract_base(inputs, tensor.base)
        target = out if tensor.base is None else None
        if self._by_row(tensor):
            row = self._row(tensor)
            factors = np.array(self._factors(tensor, kernels.row_gram(pair, row)))
            mixed_vector = kernels.weighted_sum_along(pair, factors, row, False, target)
        elif self._by_column(tensor):
            factors = np.array(statistics)
            mixed_vector = kernels.weighted_sum_along(
                pair, factors, self._row(tensor), True, target
            )
        else:
            mixed_vector = kernels.weighted_sum(pair, statistics, target)
        if tensor.base is not None:
            kernels.add_sum(inputs[tensor.base], [mixed_vector], 1.0, out)

    def _by_row(self, tensor: TensorContext) -> bool:
        return self._split(tensor) and not tensor.params["nuslerp_row_wise"]

    def _by_column(self, tensor: TensorContext) -> bool:
        return self._split(tensor) and bool(tensor.params["nuslerp_row_wise"])

    def _split(self, tensor: TensorContext) -> bool:
        return len(tensor.shape) > 1 and not tensor.params["nuslerp_flatten"]

    def _row(self, tensor: TensorContext) -> int:
        row = self.row_elements(tensor)
        assert row is not None
        return row

    @np.errstate(invalid="ignore")
    def _factors(self, tensor: TensorContext, products: np.ndarray) -> tuple[Any, Any]:
        first_weight, second_weight = tensor.values("weight")
        total = first_weight + second_weight
        t = second_weight / total if abs(total) >= SMALLEST_WEIGHT_SUM else 0.5
        norms = np.maximum(np.sqrt([products[0, 0], products[1, 1]]), SMALLEST_NORM)
        cosine = np.clip(products[0, 1] / (norms[0] * norms[1]), -1.0, 1.0)
        is_parallel = ~(np.abs(cosine).astype(np.float32) < 1.0)
        angle = np.where(is_parallel, 1.0, np.arccos(cosine))
        sine = np.sin(angle)
        return (
            np.where(is_parallel, 1.0 - t, np.sin((1.0 - t) * angle) / sine),
            np.where(is_parallel, t, np.sin(t * angle) / sine),
        )
