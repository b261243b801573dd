"""Model breadcrumbs: task vectors without their smallest and largest elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, Paper, Parameter, TensorContext
from resumerge.methods.task_vectors.base import TaskVectors, parameters
from resumerge.methods.task_vectors.ties import TIES
from resumerge.native import Vector

BREADCRUMBS = Paper(
    "Model breadcrumbs: scaling multi-task model merging with sparse masks",
    "https://arxiv.org/abs/2312.06795",
)


class BreadcrumbsMask(TaskVectors):
    """Task vectors without their smallest and largest elements.

    From a task vector of n elements, the ``int(gamma * n)`` elements of largest magnitude are
    dropped. Of the remaining elements, the ``int(density * n)`` largest are kept. If fewer would
    remain, fewer of the largest are dropped. Of equal magnitudes, the one with the lowest index
    counts as the largest.
    """

    papers: ClassVar[tuple[Paper, ...]] = (BREADCRUMBS,)
    parameters = (
        *parameters(normalize=False, rescale=False),
        Parameter(
            "gamma",
            "share of elements dropped, the largest ones",
            0.01,
            per_model=True,
            low=0.0,
            high=1.0,
        ),
    )
    selection_passes = 2

    def statistics_bytes(self, tensor: TensorContext) -> int:
        shares = []
        for i, density in self._densities(tensor).items():
            top_share = min(float(tensor.per_model[i]["gamma"]), 1.0 - density)
            shares.append([top_share + density, top_share])
        return kernels.selection_bytes(tensor.numel, shares, tensor.bits)

    def select(
        self, tensor: TensorContext, densities: Mapping[int, float], scan: Scan[Any]
    ) -> dict[int, Any]:
        ranks = {}
        for i, density in densities.items():
            kept_count = int(density * tensor.numel)
            top_count = min(
                int(float(tensor.per_model[i]["gamma"]) * tensor.numel), tensor.numel - kept_count
            )
            ranks[i] = (top_count + kept_count, top_count) if kept_count else (0, 0)
        selections = kernels.select(ranks, tensor.numel, scan)
        return {i: kernels.Band(*band_selections) for i, band_selections in selections.items()}

    def mask(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> np.ndarray:
        mask: np.ndarray = selection.mask(delta, run)
        return mask


class Breadcrumbs(BreadcrumbsMask):
    """Task vectors without their smallest and largest elements, added up."""

    name = "breadcrumbs"
    summary = "task vectors without their smallest and largest elements"
    cost = BlockCost(2.9, scratch=1.2, per_input=0.36)


class BreadcrumbsTies(BreadcrumbsMask):
    """Task vectors without smallest and largest elements, added up with TIES' sign consensus."""

    name = "breadcrumbs_ties"
    summary = "breadcrumbs' masks, then TIES' sign consensus"
    papers = (BREADCRUMBS, TIES)
    elects_signs = True
    cost = BlockCost(3.2, scratch=1.2, per_input=0.36)
