"""TIES: trim, elect signs, merge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, Paper, TensorContext
from resumerge.methods.task_vectors.base import TaskVectors, parameters
from resumerge.native import Vector

TIES = Paper(
    "TIES-Merging: resolving interference when merging models",
    "https://arxiv.org/abs/2306.01708",
)


class Ties(TaskVectors):
    """Task vectors that keep their ``max(1, int(density * n))`` elements of largest magnitude.

    With density 0, no element is kept. Of equal magnitudes at the threshold, the elements with the
    lowest indices are kept. `kernels.add_task_vectors` elects the signs (`elects_signs`).
    """

    name = "ties"
    summary = "task vectors trimmed by magnitude; elements that disagree in sign are left out"
    papers = (TIES,)
    parameters = parameters(normalize=True, rescale=False)
    elects_signs = True
    selection_passes = 2
    cost = BlockCost(1.5, scratch=1.2, per_input=0.125)

    def statistics_bytes(self, tensor: TensorContext) -> int:
        shares = [[density] for density in self._densities(tensor).values()]
        return kernels.selection_bytes(tensor.numel, shares, tensor.bits)

    def select(
        self, tensor: TensorContext, densities: Mapping[int, float], scan: Scan[Any]
    ) -> dict[int, Any]:
        counts = {i: elements_to_keep(density, tensor.numel) for i, density in densities.items()}
        return dict(kernels.select_largest(counts, tensor.numel, scan))

    def mask(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> np.ndarray:
        mask: np.ndarray = selection.mask(delta, run)
        return mask

    def mask_or_threshold(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> Any:
        return selection.mask_or_threshold(delta, run)


def elements_to_keep(density: float, numel: int) -> int:
    """Return the number of elements that a density keeps: at least one; 0 for density 0."""
    return max(1, int(density * numel)) if density > 0.0 else 0
