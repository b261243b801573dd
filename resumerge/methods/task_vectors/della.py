"""DELLA: drop elements of task vectors at random, small ones with a higher probability."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, Paper, Parameter, TensorContext
from resumerge.methods.task_vectors.base import TaskVectors, parameters
from resumerge.native import Vector

DELLA = Paper(
    "DELLA-Merging: reducing interference in model merging through magnitude-based sampling",
    "https://arxiv.org/abs/2406.11617",
)
EPSILON = Parameter(
    "epsilon",
    "keep probabilities range from density - epsilon to density + epsilon",
    0.15,
    per_model=True,
)


class RankDrop(TaskVectors):
    """Task vectors whose elements are kept with a probability that grows with their rank.

    The probability is ``density - epsilon + 2 * epsilon * r / (L - 1)``. r is the rank by
    magnitude, from 0, within the element's row. Rows run along dimension 1 and have length L; a
    tensor of one dimension is one row. The element of a row of length 1 is kept with probability
    `density`. Magnitudes that agree to 11 bits share the mean of their ranks. mergekit ranks equal
    magnitudes in any order; magnitudes in bf16 have 8 bits.
    """

    papers = (DELLA,)
    version = 2
    reuse_masks = True

    def row_elements(self, tensor: TensorContext) -> int | None:
        return math.prod(tensor.shape[1:]) if len(tensor.shape) > 1 else tensor.numel

    def validate(self, tensor: TensorContext) -> str | None:
        for i, density in self._densities(tensor).items():
            density_range = abs(float(tensor.per_model[i]["epsilon"]))
            if density > 0.0 and not (
                density - density_range > 0.0 and density + density_range < 1.0
            ):
                return "density - epsilon above 0 and density + epsilon below 1"
        return None

    def mask(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> np.ndarray:
        density = float(tensor.per_model[i]["density"])
        if density <= 0.0:
            return np.zeros(len(delta), np.uint8)
        return kernels.rank_mask(
            delta,
            tensor.shape[1] if len(tensor.shape) > 1 else tensor.numel,
            density,
            float(tensor.per_model[i]["epsilon"]),
            f"{tensor.seed}/{i}/{tensor.name}",
            run,
            stride=math.prod(tensor.shape[2:]),
        )


class Della(RankDrop):
    """The sum, by TIES' sign consensus, of task vectors that are sampled by rank."""

    name = "della"
    summary = "task vectors sampled by magnitude, then TIES' sign consensus"
    parameters = (*parameters(normalize=True, rescale=True), EPSILON)
    elects_signs = True
    cost = BlockCost(4.0, scratch=0.31, per_input=0.34)


class DellaLinear(RankDrop):
    """The sum of task vectors that are sampled by rank."""

    name = "della_linear"
    summary = "task vectors sampled by magnitude, and the rest rescaled"
    parameters = (*parameters(normalize=False, rescale=True), EPSILON)
    cost = BlockCost(3.9, scratch=0.31, per_input=0.34)
