"""What methods share that add sparsified, combined task vectors (``x - base``) to the base model.

They differ in how a task vector is sparsified and in whether elements are kept only where their
sign agrees with the majority.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from resumerge.methods import kernels
from resumerge.methods.method import Block, Method, Paper, Parameter, Scan, Work, in_order, viewed

TASK_ARITHMETIC = Paper("Editing models with task arithmetic", "https://arxiv.org/abs/2212.04089")

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

    selections: Mapping[int, Any]
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
    consensus: ClassVar[bool] = False
    sparse: ClassVar[bool] = True
    passes: ClassVar[int] = 0
    """Times that `select` reads the task vectors."""

    def select(self, work: Work, densities: Mapping[int, float], scan: Scan[Any]) -> dict[int, Any]:
        """Reduce over the task vectors what `mask` needs to know, by input.

        Args:
            densities: of the inputs that lose elements.
            scan: over dictionaries of their task vectors, by input.
        """
        return {}

    @abstractmethod
    def mask(self, work: Work, i: int, delta: Any, block: Block, selection: Any) -> np.ndarray:
        """1 for the elements of input i's task vector that are kept, else 0: uint8."""

    def compiled(self, work: Work) -> bool:
        return True

    def reads(self, work: Work) -> int:
        if not self._densities(work):
            return 1
        return 1 + self.passes + bool(work.params["rescale"])

    def statistics(self, work: Work, scan: Scan[Any]) -> Kept:
        densities = self._densities(work)
        if not densities:
            return Kept({}, {})
        selections = self.select(work, densities, viewed(scan, lambda x, block: deltas_of(work, x)))
        if not work.params["rescale"]:
            return Kept(selections, {})
        norms = kernels.summed(
            scan(lambda x, block: self._norms(work, deltas_of(work, x), block, selections))
        )
        return Kept(selections, rescaling(densities, norms))

    def block(self, work: Work, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        kept: Kept = statistics or Kept({}, {})
        deltas = deltas_of(work, inputs)
        weights = in_order([work.per_model[i] for i in work.others], "weight")
        densities = self._densities(work)
        normalize, scale = bool(work.params["normalize"]), float(work.params["lambda"])
        total = sum(weights)
        if normalize and not self.consensus and abs(total) >= kernels.SMALLEST_DIVISOR:
            scale /= total
        return kernels.combined(
            base,
            list(deltas.values()),
            [
                self.mask(work, i, delta, block, kept.selections.get(i)) if i in densities else None
                for i, delta in deltas.items()
            ],
            [w * kept.factors.get(i, 1.0) for i, w in zip(deltas, weights)],
            weights,
            self.consensus,
            normalize,
            scale,
        )

    def _densities(self, work: Work) -> dict[int, float]:
        """The density of each input whose task vector is made sparse."""
        if not self.sparse:
            return {}
        densities = {i: float(work.per_model[i]["density"]) for i in work.others}
        return {i: density for i, density in densities.items() if density < 1.0}

    def _norms(
        self,
        work: Work,
        deltas: Mapping[int, Any],
        block: Block,
        selections: Mapping[int, Any],
    ) -> np.ndarray:
        """The L1 norm of each task vector of a block, before and after dropping."""
        masks = {
            i: self.mask(work, i, deltas[i], block, selections.get(i))
            for i in self._densities(work)
        }
        return np.array([kernels.absolute_sums(deltas[i], mask) for i, mask in masks.items()])


def rescaling(inputs: Iterable[int], norms: np.ndarray) -> dict[int, float]:
    """What makes up for dropped elements, of inputs with these norms before and after."""
    return {
        i: float(before / after)
        for i, (before, after) in zip(inputs, norms)
        if after >= SMALLEST_NORM and math.isfinite(before)
    }


def deltas_of(work: Work, inputs: list[Any]) -> dict[int, Any]:
    """The task vectors, by input; inputs that are torch's are used up."""
    return dict(zip(work.others, kernels.less_base(work, inputs)))


class TaskArithmetic(TaskVectors):
    name = "task_arithmetic"
    summary = "the base plus a weighted sum of task vectors"
    papers = (TASK_ARITHMETIC,)
    parameters = parameters(normalize=False, rescale=None)
    sparse = False

    def mask(self, work: Work, i: int, delta: Any, block: Block, selection: Any) -> np.ndarray:
        raise AssertionError("it has no density")
