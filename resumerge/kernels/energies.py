"""SCE: task vectors weighted by their energies (https://arxiv.org/abs/2408.07990)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.blocks import Run
from resumerge.kernels.vectors import new_vector
from resumerge.native import Vector, _kernels


def variance(vectors: Sequence[Vector]) -> Vector:
    """The population variance of each element over vectors that have one base, or none: float32.

    Exactly 0 where all are equal. Welford's recurrence, which needs no sum of squares
    (https://doi.org/10.2307/1266577), each operation rounded to float32.
    """
    out = new_vector(len(vectors[0]))
    _kernels.variance(vectors, out)
    return out


def sums_of_squares(deltas: Sequence[Vector], mask: np.ndarray | None, run: Run) -> np.ndarray:
    """``sum(d**2)`` of each block and vector, over the elements that a mask keeps.

    Args:
        mask: uint8 of 0 and 1; None keeps all.

    Returns:
        float64, shape ``(len(run), len(deltas))``.
    """
    out = np.empty((len(deltas), len(run)))
    for delta, sums in zip(deltas, out):
        _kernels.sums_of_squares(delta, mask, run.size, sums)
    return out.T


def add_majority_mean(
    base: Vector,
    deltas: Sequence[Vector],
    mask: np.ndarray | None,
    weights: Sequence[float],
    out: Vector,
) -> None:
    """``base + sum(a_i * w_i * d_i) / sum(a_i * w_i)``.

    a_i is 1 where d_i has the sign of ``sum(d_i)`` (plus, for a sum of zero), else 0.

    Args:
        base: what the vectors `deltas` are differences from.
        mask: uint8 of 0 and 1; None keeps all. Masked elements count as 0, NaN too.
        weights: one for each vector, at least 0.
    """
    _kernels.add_majority_mean(base, deltas, mask, weights, out)
