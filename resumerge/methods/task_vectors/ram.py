"""RAM: what several models changed is averaged, what one model changed is kept whole."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.methods.base import Block, Method, Paper, Parameter, Scan, TensorContext

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

    def compiled(self, work: TensorContext) -> bool:
        return True

    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        deltas = kernels.less_base(work, inputs)
        epsilon = float(work.params["epsilon"])
        return kernels.averaged_changes(base, deltas, epsilon, [1.0] * len(deltas))


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

    def compiled(self, work: TensorContext) -> bool:
        return True

    def passes(self, work: TensorContext) -> int:
        return 2

    def statistics(self, work: TensorContext, scan: Scan[Any]) -> list[float]:
        """The factor on each model's unique elements."""
        if not work.others:
            return []
        epsilon = float(work.params["epsilon"])
        counts = kernels.summed(
            scan(lambda x, block: kernels.changed_counts(kernels.less_base(work, x), epsilon))
        )
        alpha, r = float(work.params["alpha"]), float(work.params["r"])
        ratios = [(changed - alone) / alone if alone else 0.0 for changed, alone in counts.tolist()]
        return [1.0 + r * min(max(ratio, 0.0), alpha) for ratio in ratios]

    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base = inputs[work.base]  # type: ignore[index]
        if not work.others:
            return base
        deltas = kernels.less_base(work, inputs)
        return kernels.averaged_changes(base, deltas, float(work.params["epsilon"]), statistics)
