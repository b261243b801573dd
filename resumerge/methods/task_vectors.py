"""Methods that add sparsified, combined task vectors (``x - base``) to the base model.

They differ in how a task vector is sparsified (not, by magnitude, at random) and in whether
elements are kept only where their sign agrees with the majority.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from resumerge.methods import kernels
from resumerge.methods.method import Block, Method, Paper, Parameter, Scan, Work, in_order

if TYPE_CHECKING:
    from torch import Tensor

TASK_ARITHMETIC = Paper("Editing models with task arithmetic", "https://arxiv.org/abs/2212.04089")
TIES = Paper(
    "TIES-Merging: resolving interference when merging models",
    "https://arxiv.org/abs/2306.01708",
)
DARE = Paper(
    "Language models are Super Mario: absorbing abilities from homologous models as a free lunch",
    "https://arxiv.org/abs/2311.03099",
)


SMALLEST_NORM = 1e-7
"""A sparsified task vector with a smaller L1 norm is not rescaled; nor is one with NaN or infinity,
which would spread over the tensor."""


def parameters(*, normalize: bool, rescale: bool | None) -> tuple[Parameter, ...]:
    """The family's parameters with one method's defaults; no rescale where nothing is dropped."""
    shared = [
        Parameter("weight", "factor on this model's task vector", per_model=True),
        Parameter("lambda", "factor on the combined task vector", 1.0),
        Parameter(
            "normalize", "divide by the sum of the weights that took part", normalize, "bool"
        ),
        Parameter("int8_mask", "accepted; masks never take more than a byte here", False, "bool"),
    ]
    if rescale is not None:
        shared += [
            Parameter("density", "share of elements kept", 1.0, per_model=True, low=0.0, high=1.0),
            Parameter("rescale", "make up for the dropped elements", rescale, "bool"),
        ]
    return tuple(shared)


@dataclass(frozen=True)
class Kept:
    """What the blocks need to know of the whole task vectors, by input.

    Args:
        selections: which elements are among the largest.
        factors: what makes up for the dropped elements.
    """

    selections: Mapping[int, kernels.Selection]
    factors: Mapping[int, float]


class TaskVectors(Method):
    """``base + lambda * sum(m_i * w_i * s_i(x_i - base)) / divisor``.

    s_i sparsifies, m_i is 1 where the element takes part (always, or by sign consensus), and the
    divisor is 1 or, with `normalize`, ``sum(m_i * w_i)`` where that is not nearly zero.

    With `rescale`, a sparsified task vector is multiplied so that its L1 norm is what it was
    before. That is mergekit's rule; the DARE paper divides by the density, which differs from it
    by the chance of the draw (and is the same in expectation).
    """

    base = "required"
    sparsify: ClassVar[Literal["none", "magnitude", "random"]] = "none"
    consensus: ClassVar[bool] = False

    def reads(self, work: Work) -> int:
        if not self._sparsified(work):
            return 1
        return 1 + 2 * (self.sparsify == "magnitude") + bool(work.params["rescale"])

    def statistics(self, work: Work, scan: Scan[Any]) -> Kept:
        sparsified = self._sparsified(work)
        selections: dict[int, kernels.Selection] = {}
        if sparsified and self.sparsify == "magnitude":
            selections = kernels.select_largest(
                {i: kept_count(density, work.numel) for i, density in sparsified.items()},
                lambda part: scan(lambda x, block: part(self._deltas(work, x), block)),
            )
        if not (sparsified and work.params["rescale"]):
            return Kept(selections, {})
        before, after = dict.fromkeys(sparsified, 0.0), dict.fromkeys(sparsified, 0.0)
        for part in scan(lambda x, block: self._norms(work, x, block, selections)):
            for i, (whole, rest) in part.items():
                before[i] += whole
                after[i] += rest
        return Kept(
            selections,
            {
                i: before[i] / after[i]
                for i in sparsified
                if after[i] >= SMALLEST_NORM and math.isfinite(before[i])
            },
        )

    def block(self, work: Work, inputs: list[Tensor], block: Block, statistics: Any) -> Tensor:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        kept: Kept = statistics or Kept({}, {})
        deltas = self._deltas(work, inputs)
        weights = in_order([work.per_model[i] for i in work.others], "weight")
        for (i, delta), weight in zip(deltas.items(), weights):
            self._drop(work, i, delta, block, kept.selections)
            delta.mul_(weight * kept.factors.get(i, 1.0))
        scale = float(work.params["lambda"])
        if self.consensus:
            mixed = kernels.agreeing_sum(
                list(deltas.values()), weights, bool(work.params["normalize"])
            )
        else:
            mixed = kernels.plain_sum(list(deltas.values()))
            total = sum(weights)
            if work.params["normalize"] and abs(total) >= kernels.SMALLEST_DIVISOR:
                scale /= total
        return base.add_(mixed, alpha=scale)

    def _sparsified(self, work: Work) -> dict[int, float]:
        """The density of each input whose task vector is made sparse."""
        if self.sparsify == "none":
            return {}
        densities = {i: float(work.per_model[i]["density"]) for i in work.others}
        return {i: density for i, density in densities.items() if density < 1.0}

    def _deltas(self, work: Work, inputs: list[Tensor]) -> dict[int, Tensor]:
        base = inputs[work.base]  # type: ignore[index]
        return {i: inputs[i].sub_(base) for i in work.others}

    def _drop(
        self,
        work: Work,
        i: int,
        delta: Tensor,
        block: Block,
        selections: Mapping[int, kernels.Selection],
    ) -> None:
        """Set the elements of a task vector that are not kept to zero."""
        density = float(work.per_model[i].get("density", 1.0))
        if self.sparsify == "none" or density >= 1.0:
            return
        if self.sparsify == "magnitude":
            selections[i].apply(delta, block)
        else:
            kernels.drop_at_random(delta, density, f"{work.seed}/{i}/{work.unit}", block)

    def _norms(
        self,
        work: Work,
        inputs: list[Tensor],
        block: Block,
        selections: Mapping[int, kernels.Selection],
    ) -> dict[int, tuple[float, float]]:
        """The L1 norm of each task vector of a block, before and after dropping."""
        deltas = self._deltas(work, inputs)
        norms = {}
        for i in self._sparsified(work):
            whole = kernels.absolute_sum(deltas[i])
            self._drop(work, i, deltas[i], block, selections)
            norms[i] = (whole, kernels.absolute_sum(deltas[i]))
        return norms


def kept_count(density: float, numel: int) -> int:
    """How many elements a density keeps: at least one, unless the density is zero."""
    return max(1, int(density * numel)) if density > 0.0 else 0


class TaskArithmetic(TaskVectors):
    name = "task_arithmetic"
    summary = "the base plus a weighted sum of task vectors"
    papers = (TASK_ARITHMETIC,)
    parameters = parameters(normalize=False, rescale=None)


class Ties(TaskVectors):
    name = "ties"
    summary = "task vectors trimmed by magnitude; elements that disagree in sign are left out"
    papers = (TIES,)
    parameters = parameters(normalize=True, rescale=False)
    sparsify = "magnitude"
    consensus = True


class DareLinear(TaskVectors):
    name = "dare_linear"
    summary = "task vectors with elements dropped at random, and the rest rescaled"
    papers = (DARE,)
    parameters = parameters(normalize=False, rescale=True)
    sparsify = "random"


class DareTies(TaskVectors):
    name = "dare_ties"
    summary = "DARE's random dropping, then TIES' sign consensus"
    papers = (DARE, TIES)
    parameters = parameters(normalize=False, rescale=True)
    sparsify = "random"
    consensus = True
