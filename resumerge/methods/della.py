"""DELLA: drop at random, small elements rather than large ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resumerge.methods import kernels
from resumerge.methods.method import Block, Paper, Parameter, Scan, Work
from resumerge.methods.task_vectors import Kept, TaskVectors, deltas_of, parameters, rescaling

DELLA = Paper(
    "DELLA-Merging: reducing interference in model merging through magnitude-based sampling",
    "https://arxiv.org/abs/2406.11617",
)
EPSILON = Parameter(
    "epsilon", "how far the probabilities reach to both sides of the density", 0.15, per_model=True
)

MOST_KEPT = 1 << 28
"""Elements of the largest tensor whose masks are kept: 32 MiB for each of its inputs."""


class SampledByRank(TaskVectors):
    """An element is kept with probability ``density - epsilon + 2 * epsilon * r / (L - 1)``.

    r is its rank by magnitude, from 0, within its row; rows run along dimension 1 (a tensor of one
    dimension is one row), and L is their length. The one element of a row of length 1 is kept with
    probability `density`. Magnitudes that agree to 11 bits share the mean of their ranks: mergekit
    ranks what is equal in any order, and in bf16 agrees to 8 bits.
    """

    papers = (DELLA,)
    version = 2

    def row(self, work: Work) -> int | None:
        return math.prod(work.shape[1:]) if len(work.shape) > 1 else work.numel

    def objection(self, work: Work) -> str | None:
        for i, density in self._densities(work).items():
            reach = abs(float(work.per_model[i]["epsilon"]))
            if density > 0.0 and not (density - reach > 0.0 and density + reach < 1.0):
                return "density - epsilon above 0 and density + epsilon below 1"
        return None

    def held_bytes(self, work: Work) -> int:
        return len(self._densities(work)) * work.numel // 8 if self._keeps_masks(work) else 0

    def statistics(self, work: Work, scan: Scan[Any]) -> Kept:
        """As of all, but in one pass: the masks are kept, a bit an element, to be used again."""
        if not self._keeps_masks(work):
            return super().statistics(work, scan)
        densities = self._densities(work)
        found: dict[int, list[np.ndarray]] = {i: [] for i in densities}

        def part(inputs: list[Any], block: Block) -> tuple[list[np.ndarray], np.ndarray]:
            deltas = deltas_of(work, inputs)
            masks = [self._mask(work, i, deltas[i], block) for i in densities]
            sums = [kernels.absolute_sums(deltas[i], mask) for i, mask in zip(densities, masks)]
            return [np.packbits(mask) for mask in masks], np.array(sums)

        norms = []
        for masks, sums in scan(part):
            norms.append(sums)
            for i, mask in zip(densities, masks):
                found[i].append(mask)
        return Kept(found, rescaling(densities, kernels.summed(norms)))

    def mask(self, work: Work, i: int, delta: Any, block: Block, selection: Any) -> np.ndarray:
        if selection is None:
            return self._mask(work, i, delta, block)
        return np.unpackbits(selection[block.index], count=len(delta))

    def _keeps_masks(self, work: Work) -> bool:
        """Whether masks are needed twice, and small enough to be kept in between."""
        return bool(self._densities(work) and work.params["rescale"]) and work.numel <= MOST_KEPT

    def _mask(self, work: Work, i: int, delta: Any, block: Block) -> np.ndarray:
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
