"""DARE: drop and rescale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from resumerge.methods import kernels
from resumerge.methods.method import Block, Paper, Work
from resumerge.methods.task_vectors import TaskVectors, parameters
from resumerge.methods.ties import TIES

if TYPE_CHECKING:
    from torch import Tensor

DARE = Paper(
    "Language models are Super Mario: absorbing abilities from homologous models as a free lunch",
    "https://arxiv.org/abs/2311.03099",
)


class Dropped(TaskVectors):
    """Each element of a task vector is kept with probability `density`."""

    papers: ClassVar[tuple[Paper, ...]] = (DARE,)
    parameters = parameters(normalize=False, rescale=True)

    def drop(self, work: Work, i: int, delta: Tensor, block: Block, selection: Any) -> None:
        density = float(work.per_model[i]["density"])
        kernels.drop_at_random(delta, density, f"{work.seed}/{i}/{work.unit}", block)


class DareLinear(Dropped):
    name = "dare_linear"
    summary = "task vectors with elements dropped at random, and the rest rescaled"


class DareTies(Dropped):
    name = "dare_ties"
    summary = "DARE's random dropping, then TIES' sign consensus"
    papers = (DARE, TIES)
    consensus = True
