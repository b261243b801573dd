"""Model stock: the mean of fine-tuned models, moved towards the base by their angles."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

SMALLEST_PRODUCT = 1e-6
"""The smallest divisor of a dot product; a smaller product of two norms is replaced by it."""


class ModelStock(KernelMethod):
    """``t * mean(x_i) + (1 - t) * base`` with ``t = n c / (1 + (n-1) c)``.

    n is the number of models, c the mean cosine over all pairs of their task vectors. With
    `filter_wise`, each vector along the last dimension has its own c; else the tensor has one.
    """

    name = "model_stock"
    summary = "mean of fine-tuned models, moved towards the base by the angles between them"
    papers = (
        Paper(
            "Model stock: all we need is just a few fine-tuned models",
            "https://arxiv.org/abs/2403.19522",
        ),
    )
    parameters = (
        Parameter("filter_wise", "one angle per row, not one for the whole tensor", False, "bool"),
    )
    base = "required"
    fewest = 3
    cost = BlockCost(1.0, scratch=0.08, per_input=0.03)
    combines_changes = True

    def passes(self, tensor: TensorContext) -> int:
        return 1 if self._by_row(tensor) else 2

    def row_elements(self, tensor: TensorContext) -> int | None:
        return tensor.shape[-1] if self._by_row(tensor) else None

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> float:
        """Return the share t of the models' mean."""
        products = scan(lambda x, run: kernels.gram(kernels.subtract_base(x, tensor.base), run))
        return float(share_of_mean(kernels.sum_blocks(products)))

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base = tensor.base_of(inputs)
        task_vectors = kernels.subtract_base(inputs, tensor.base)
        if not self._by_row(tensor):
            kernels.add_sum(base, task_vectors, statistics / len(task_vectors), out)
            return
        row = tensor.shape[-1]
        shares = share_of_mean(kernels.row_gram(task_vectors, row)) / len(task_vectors)
        factors = np.array([np.ones(len(shares)), shares])
        terms = [base, kernels.weighted_sum(task_vectors, [1.0] * len(task_vectors))]
        kernels.weighted_sum_along(terms, factors, row, False, out)

    def _by_row(self, tensor: TensorContext) -> bool:
        return bool(tensor.params["filter_wise"]) and len(tensor.shape) > 1


@np.errstate(invalid="ignore")
def share_of_mean(products: np.ndarray) -> np.ndarray:
    """Return the share t of the models' mean from the dot products of the task vectors.

    Where the task vectors cancel, t is 0, so that the result is the base. Where a product is NaN or
    infinite, t is 1.

    Args:
        products: float64, shape ``(n, n, ...)`` for n models.

    Returns:
        float64, of the shape that follows ``(n, n)``.
    """
    count = len(products)
    pairs = list(combinations(range(count), 2))
    norms = np.sqrt([products[i, i] for i in range(count)])
    cosines = [
        np.clip(products[i, j] / np.maximum(norms[i] * norms[j], SMALLEST_PRODUCT), -1.0, 1.0)
        for i, j in pairs
    ]
    cosine = np.nan_to_num(sum(cosines) / len(pairs), nan=1.0)
    divisor = np.asarray(1.0 + (count - 1) * cosine)
    cancels = divisor == 0.0
    result: np.ndarray = np.where(cancels, 0.0, count * cosine / np.where(cancels, 1.0, divisor))
    return result
