"""RAM: the mean change of the models that changed an element; the others are not counted."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.methods.base import BlockCost, KernelMethod, Paper, Parameter, TensorContext
from resumerge.native import Vector

RAM = Paper(
    "Behavior knowledge merge in reinforced agentic models",
    "https://arxiv.org/abs/2601.13572",
)
EPSILON = Parameter("epsilon", "changes of an element below this count as zero", 1e-5, low=0)


class Ram(KernelMethod):
    """``base + sum(d_i) / c`` over the c models that changed an element.

    A model changed an element where ``|d_i| = |x_i - base| > epsilon``.
    """

    name = "ram"
    summary = "task vectors averaged over the models that changed an element"
    papers = (RAM,)
    parameters = (EPSILON,)
    base = "required"
    cost = BlockCost(0.6, scratch=0.06, per_input=0.03)
    combines_changes = True

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base = tensor.base_of(inputs)
        if not tensor.others:
            kernels.round_to(base, out)
            return
        deltas = kernels.subtract_base(inputs, tensor.base)
        epsilon = float(tensor.params["epsilon"])
        kernels.add_mean_change(base, deltas, epsilon, [1.0] * len(deltas), out)


class RamPlus(KernelMethod):
    """RAM; changes that only model i makes are multiplied by ``1 + r * clamp(q_i, 0, alpha)``.

    q_i is the number of elements that model i and other models changed, divided by the number of
    elements that only model i changed; 0 if that number is 0.
    """

    name = "ramplus_tl"
    summary = "RAM, with elements that only one model changed scaled up"
    papers = (RAM,)
    parameters = (
        Parameter("r", "strength of the scaling", 0.1),
        Parameter("alpha", "upper limit for the ratio of shared to unique elements", 0.2),
        EPSILON,
    )
    base = "required"
    cost = BlockCost(1.1, scratch=0.06, per_input=0.03)
    combines_changes = True

    def passes(self, tensor: TensorContext) -> int:
        return 2

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> list[float]:
        """Return, for each model, the factor on the elements that only it changed."""
        if not tensor.others:
            return []
        epsilon = float(tensor.params["epsilon"])
        counts = kernels.sum_blocks(
            scan(
                lambda x, run: kernels.count_changes(
                    kernels.subtract_base(x, tensor.base), epsilon, run
                )
            )
        )
        alpha, r = float(tensor.params["alpha"]), float(tensor.params["r"])
        ratios = [
            (changed_elements - changed_alone) / changed_alone if changed_alone else 0.0
            for changed_elements, changed_alone in counts.tolist()
        ]
        return [1.0 + r * min(max(ratio, 0.0), alpha) for ratio in ratios]

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base = tensor.base_of(inputs)
        if not tensor.others:
            kernels.round_to(base, out)
            return
        deltas = kernels.subtract_base(inputs, tensor.base)
        epsilon = float(tensor.params["epsilon"])
        kernels.add_mean_change(base, deltas, epsilon, statistics, out)
