"""DELLA: drop at random, small elements rather than large ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.methods.base import Block, Paper, Parameter, TensorContext
from resumerge.methods.task_vectors.base import TaskVectors, parameters

DELLA = Paper(
    "DELLA-Merging: reducing interference in model merging through magnitude-based sampling",
    "https://arxiv.org/abs/2406.11617",
)
EPSILON = Parameter(
    "epsilon", "how far the probabilities reach to both sides of the density", 0.15, per_model=True
)


class SampledByRank(TaskVectors):
    """An element is kept with probability ``density - epsilon + 2 * epsilon * r / (L - 1)``.

    r is its rank by magnitude, from 0, within its row; rows run along dimension 1 (a tensor of one
    dimension is one row), and L is their length. The one element of a row of length 1 is kept with
    probability `density`. Magnitudes that agree to 11 bits share the mean of their ranks: mergekit
    ranks what is equal in any order, and in bf16 agrees to 8 bits.
    """

    papers = (DELLA,)
    version = 2
    dear_masks = True

    def row(self, work: TensorContext) -> int | None:
        return math.prod(work.shape[1:]) if len(work.shape) > 1 else work.numel

    def validate(self, work: TensorContext) -> str | None:
        for i, density in self._densities(work).items():
            reach = abs(float(work.per_model[i]["epsilon"]))
            if density > 0.0 and not (density - reach > 0.0 and density + reach < 1.0):
                return "density - epsilon above 0 and density + epsilon below 1"
        return None

    def mask(
        self, work: TensorContext, i: int, delta: Any, block: Block, selection: Any
    ) -> np.ndarray:
        density = float(work.per_model[i]["density"])
        if density <= 0.0:
            return np.zeros(len(delta), np.uint8)
        return kernels.kept_by_rank(
            delta,
            work.shape[1] if len(work.shape) > 1 else work.numel,
            density,
            float(work.per_model[i]["epsilon"]),
            f"{work.seed}/{i}/{work.unit}",
            block,
            stride=math.prod(work.shape[2:]),
        )


class Della(SampledByRank):
    name = "della"
    summary = "task vectors sampled by magnitude, then TIES' sign consensus"
    parameters = (*parameters(normalize=True, rescale=True), EPSILON)
    consensus = True


class DellaLinear(SampledByRank):
    name = "della_linear"
    summary = "task vectors sampled by magnitude, and the rest rescaled"
    parameters = (*parameters(normalize=False, rescale=True), EPSILON)
