"""Promise: an element depends on its own operands alone, whatever overflows in the same run."""

from __future__ import annotations

import numpy as np

from resumerge import kernels
from resumerge.native import Vector

SMALLEST = np.finfo(np.float32).tiny


def voted(base: list[float], *models: list[float]) -> list[float]:
    wide = Vector(np.array(base, np.float32))
    deltas = [Vector(np.array(model, np.float32)).less(wide) for model in models]
    out = Vector(np.empty(len(base), np.float32))
    kernels.add_voted_sum(wide, deltas, [0.0, 2.0], [1.0, 1.0], 2, 1.0, out)
    return [float(number) for number in out.data]


def test_a_number_that_is_not_finite_is_no_overflow() -> None:
    """No model's vote counts where one is infinite and has no weight: the base stays."""
    assert voted([SMALLEST], [np.inf], [1.0]) == [SMALLEST]
    beside = voted([SMALLEST, 0.0], [np.inf, 3e38], [1.0, 3e38])
    assert beside[0] == SMALLEST
