"""The gates of each layer: a row for each expert, which a token is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable

from resumerge.recipe.types import Mixture
from resumerge.tensors import Computed, Step, Tensor
from resumerge.tensors.generated import Drawn

Gates = Callable[[int], Tensor]
"""By number of the layer, the gates of all experts, the shared ones last: (experts, hidden)."""


def drawn_gates(mixture: Mixture, hidden: int, seed: int) -> Gates:
    """Random gates, each layer's its own.

    As mergekit-moe 0.1.5 draws them (observed), though not the same numbers: ``random`` from the
    standard normal distribution, ``uniform_random`` from that of torch's linear layers.
    """
    shape = (len(mixture.every), hidden)
    bound = math.sqrt(1.0 / hidden) if mixture.gate_mode == "uniform_random" else None
    return lambda layer: Drawn.of("gates", shape, f"{seed}/gates/{layer}", bound)


def gates_of_prompts(step: Step, experts: int, hidden: int) -> Gates:
    """The directions of prompts: each layer's own, or all layers' if the step has one piece."""
    alike = step.pieces == 1
    return lambda layer: Computed.of("gates", (experts, hidden), step, 0 if alike else layer)
