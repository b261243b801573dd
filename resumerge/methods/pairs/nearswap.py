"""Nearswap: the elements of the other model where they are close to the base's."""

from __future__ import annotations

from typing import Any

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun
from resumerge.methods.base import BlockCost, KernelMethod, Parameter, TensorContext
from resumerge.native import Vector


class NearSwap(KernelMethod):
    """``base + w * (x - base)`` with ``w = clamp(t / |x - base|, 0, 1)``.

    The result is x limited to ``[base - t, base + t]``; the base if t is negative.
    """

    name = "nearswap"
    summary = "the base moved towards the other model by at most t, element by element"
    parameters = (Parameter("t", "largest change of an element", example=0.5),)
    base = "required"
    fewest = 2
    most = 2
    cost = BlockCost(0.5, scratch=0.12)

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base, other_model = tensor.base_of(inputs), inputs[tensor.others[0]]
        t = float(tensor.params["t"])
        if not t > 0.0:
            kernels.round_to(base, out)
        else:
            kernels.clamp_to_distance(other_model, base, t, out)
