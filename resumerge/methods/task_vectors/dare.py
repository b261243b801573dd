"""DARE: drop elements of task vectors at random, and rescale the rest."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, Paper, TensorContext
from resumerge.methods.task_vectors.base import TaskVectors, parameters
from resumerge.methods.task_vectors.ties import TIES
from resumerge.native import Vector

DARE = Paper(
    "Language models are Super Mario: absorbing abilities from homologous models as a free lunch",
    "https://arxiv.org/abs/2311.03099",
)


class RandomDrop(TaskVectors):
    """Task vectors whose elements are kept at random, with probability `density`."""

    papers: ClassVar[tuple[Paper, ...]] = (DARE,)
    parameters = parameters(normalize=False, rescale=True)
    reuse_masks = True

    def mask(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> np.ndarray:
        density = float(tensor.per_model[i]["density"])
        return kernels.random_mask(density, f"{tensor.seed}/{i}/{tensor.name}", run)


class DareLinear(RandomDrop):
    """The sum of task vectors with elements dropped at random."""

    name = "dare_linear"
    summary = "task vectors with elements dropped at random, and the rest rescaled"
    cost = BlockCost(1.4, scratch=0.45, per_input=0.25)


class DareTies(RandomDrop):
    """The sum, by TIES' sign consensus, of task vectors with elements dropped at random."""

    name = "dare_ties"
    summary = "DARE's random dropping, then TIES' sign consensus"
    papers = (DARE, TIES)
    elects_signs = True
    cost = BlockCost(1.5, scratch=0.45, per_input=0.25)
