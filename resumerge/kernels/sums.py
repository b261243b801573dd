"""Weighted sums of vectors; each product and each sum is rounded to float32, in the order given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.vectors import new_vector
from resumerge.native import Vector, _kernels


def weighted_sum(terms: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
    """``sum(w_i * x_i)``."""
    _kernels.weighted_sum(terms, weights, out)


def weighted_sum_along(
    terms: Sequence[Vector], weights: np.ndarray, row: int, by_column: bool, out: Vector
) -> None:
    """``sum(w_i * x_i)``, where each vector has a weight for each of its rows (or columns).

    Args:
        weights: rounded to float32; shape ``(len(terms), rows)`` or, `by_column`,
            ``(len(terms), row)``.
        row: elements of a row.
    """
    rounded = np.ascontiguousarray(weights, np.float32)
    _kernels.weighted_sum_along(terms, rounded, row, by_column, out)


def sum_of(terms: Sequence[Vector]) -> Vector:
    """The sum of vectors: float32."""
    out = new_vector(len(terms[0]))
    _kernels.weighted_sum(terms, [1.0] * len(terms), out)
    return out


def add_sum(base: Vector, changes: Sequence[Vector], scale: float, out: Vector) -> None:
    """``base + scale * sum(x_i)``; the changes are differences from the base, or plain vectors."""
    every, ones = [None] * len(changes), [1.0] * len(changes)
    _kernels.add_task_vectors(base, changes, every, ones, ones, False, False, scale, out)
