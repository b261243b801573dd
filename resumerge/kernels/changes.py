"""RAM: elements by how many models changed them (https://arxiv.org/abs/2601.13572).

A model changed an element where the magnitude of its task vector is above `epsilon`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.blocks import Run
from resumerge.native import Vector, _kernels


def add_mean_change(
    base: Vector, deltas: Sequence[Vector], epsilon: float, factors: Sequence[float], out: Vector
) -> None:
    """``base + sum(f_i * d_i) / c`` over the c models that changed an element.

    Args:
        base: what the vectors `deltas` are differences from.
        factors: one for each model, on the elements that it alone changed.
    """
    _kernels.add_mean_change(base, deltas, factors, epsilon, out)


def count_changes(deltas: Sequence[Vector], epsilon: float, run: Run) -> np.ndarray:
    """For each block and model, how many elements it changed, and how many it alone did.

    Args:
        deltas: differences from one base.

    Returns:
        int64, shape ``(len(run), len(deltas), 2)``.
    """
    out = np.empty((len(run), len(deltas), 2), np.int64)
    _kernels.count_changes(deltas, epsilon, run.size, out)
    return out
