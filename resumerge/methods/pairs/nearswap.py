"""Nearswap: the other model where it is near to the base."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.methods.base import Block, Method, Parameter, TensorContext


class NearSwap(Method):
    """``base + w * (x - base)`` with ``w = clamp(t / |x - base|, 0, 1)``.

    That is x limited to ``[base - t, base + t]``, and the base where t is negative.
    """

    name = "nearswap"
    summary = "the base moved towards the other model by at most t, element by element"
    parameters = (Parameter("t", "how far an element may move"),)
    base = "required"
    fewest = 2
    most = 2

    def compiled(self, work: TensorContext) -> bool:
        return True

    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base, other = inputs[work.base], inputs[work.others[0]]  # type: ignore[index]
        t = float(work.params["t"])
        if not t > 0.0:
            return base
        return kernels.limited(other, base, t)
