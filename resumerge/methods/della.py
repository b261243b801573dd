"""DELLA: drop at random, small elements rather than large ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.methods import kernels
from resumerge.methods.method import Block, Paper, Parameter, Work
from resumerge.methods.task_vectors import TaskVectors, parameters

if TYPE_CHECKING:
    from torch import Tensor

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
    probability `density`. Of equal magnitudes, the first has the lower rank.
    """

    papers = (DELLA,)
    scratch = 17

    def row(self, work: Work) -> int | None:
        return math.prod(work.shape[1:]) if len(work.shape) > 1 else work.numel

    def objection(self, work: Work) -> str | None:
        for i, density in self._densities(work).items():
            reach = abs(float(work.per_model[i]["epsilon"]))
            if density > 0.0 and not (density - reach > 0.0 and density + reach < 1.0):
                return "density - epsilon above 0 and density + epsilon below 1"
        return None

    def drop(self, work: Work, i: int, delta: Tensor, block: Block, selection: Any) -> None:
        density = float(work.per_model[i]["density"])
        if density <= 0.0:
            delta.zero_()
            return
        length = work.shape[1] if len(work.shape) > 1 else work.numel
        ranks = kernels.ranks_by_magnitude(delta, length, math.prod(work.shape[2:]))
        reach = float(work.per_model[i]["epsilon"]) if length > 1 else 0.0
        probabilities = np.linspace(density - reach, density + reach, length)
        key = f"{work.seed}/{i}/{work.unit}"
        kernels.drop_by_rank(delta, ranks, probabilities, key, block)


class Della(SampledByRank):
    name = "della"
    summary = "task vectors sampled by magnitude, then TIES' sign consensus"
    parameters = (*parameters(normalize=True, rescale=True), EPSILON)
    consensus = True


class DellaLinear(SampledByRank):
    name = "della_linear"
    summary = "task vectors sampled by magnitude, and the rest rescaled"
    parameters = (*parameters(normalize=False, rescale=True), EPSILON)
