"""RAM: what several models changed is averaged, what one model changed is kept whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.methods import kernels
from resumerge.methods.method import Block, Method, Paper, Parameter, Scan, Work

if TYPE_CHECKING:
    from torch import Tensor

RAM = Paper(
    "Behavior knowledge merge in reinforced agentic models",
    "https://arxiv.org/abs/2601.13572",
)
EPSILON = Parameter("epsilon", "an element changed by no more than this is unchanged", 1e-5, low=0)


class Ram(Method):
    """``base + sum(d_i) / c`` over the models that changed an element, c of them.

    A model changed an element where ``|d_i| = |x_i - base| > epsilon``.
    """

    name = "ram"
    summary = "task vectors averaged over the models that changed an element"
    papers = (RAM,)
    parameters = (EPSILON,)
    base = "required"

    def block(self, work: Work, inputs: list[Tensor], block: Block, statistics: Any) -> Tensor:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        deltas, counts = _changes(work, inputs)
        return base.add_(kernels.plain_sum(deltas).div_(counts.clamp_min_(1.0)))


class RamPlus(Method):
    """RAM, with what model i alone changed multiplied by ``1 + r * clamp(q_i, 0, alpha)``.

    q_i is the number of elements that model i changed together with others, divided by the number
    that it changed alone; 0 where it changed none alone.
    """

    name = "ramplus_tl"
    summary = "RAM, with what one model alone changed scaled up"
    papers = (RAM,)
    parameters = (
        Parameter("r", "how much to scale up", 0.1),
        Parameter("alpha", "largest ratio of shared to unique elements that counts", 0.2),
        EPSILON,
    )
    base = "required"

    def reads(self, work: Work) -> int:
        return 2

    def statistics(self, work: Work, scan: Scan[Any]) -> list[float]:
        """The factor on each model's unique elements."""
        counts = kernels.summed(scan(lambda x, block: _shared_and_unique(work, x)))
        alpha, r = float(work.params["alpha"]), float(work.params["r"])
        ratios = [shared / unique if unique else 0.0 for shared, unique in counts.tolist()]
        return [1.0 + r * min(max(ratio, 0.0), alpha) for ratio in ratios]

    def block(self, work: Work, inputs: list[Tensor], block: Block, statistics: Any) -> Tensor:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        deltas, counts = _changes(work, inputs)
        unique = kernels.equals(counts, 1.0)
        total = kernels.plain_sum(
            [
                delta.addcmul_(delta, unique, value=factor - 1.0)
                for delta, factor in zip(deltas, statistics)
            ]
        )
        return base.add_(total.div_(counts.clamp_min_(1.0)))


def _changes(work: Work, inputs: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Task vectors without their small elements, and how many models changed each element."""
    deltas = [
        kernels.keep_above(delta, float(work.params["epsilon"]))
        for delta in kernels.less_base(work, inputs)
    ]
    return deltas, kernels.plain_sum([_changed(delta) for delta in deltas])


def _changed(delta: Tensor) -> Tensor:
    """1 where an element is not zero, else 0 (NaN too)."""
    return delta.sign().nan_to_num_(0.0).abs_()


def _shared_and_unique(work: Work, inputs: list[Tensor]) -> np.ndarray:
    """For each model, how many elements it changed with others, and alone; float64 ``(n, 2)``."""
    deltas, counts = _changes(work, inputs)
    alone = kernels.equals(counts, 1.0)
    rows = []
    for delta in deltas:
        changed = _changed(delta)
        every = kernels.absolute_sum(changed)
        unique = kernels.absolute_sum(changed.mul_(alone))
        rows.append((every - unique, unique))
    return np.array(rows).reshape(-1, 2)
