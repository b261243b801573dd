"""Elementwise kernels: an element of the result depends on that element of each operand only.

Each product and each sum is rounded to float32, in the order of the formula. For an overflow of
float32, see `resumerge.kernels.overflow`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.overflow import Elementwise, intermediate, without_overflow
from resumerge.native import Vector, _kernels


def new_vector(length: int) -> Vector:
    """Return a float32 vector with undefined elements."""
    return Vector(np.empty(length, np.float32))


def round_to(vector: Vector, out: Vector) -> None:
    """Write a vector into `out`, rounded to the dtype of `out`: to nearest, ties to even."""
    _kernels.round_to(vector, out)


def weighted_sum(
    terms: Sequence[Vector], weights: Sequence[float], out: Vector | None = None
) -> Vector:
    """Compute ``sum(w_i * x_i)`` of the terms x_i.

    Args:
        terms: the x_i.
        weights: the w_i, one for each term.
        out: the vector to write to, rounded to its dtype; None to return a new vector as an operand
            for another kernel.

    Returns:
        `out`, or the new vector: float32, or float64 if float32 overflows.
    """
    return _computed(lambda x, to, _: _kernels.weighted_sum(x, weights, to), terms, out)


def weighted_sum_along(
    terms: Sequence[Vector],
    weights: np.ndarray,
    row: int,
    by_column: bool,
    out: Vector | None = None,
) -> Vector:
    """Compute ``sum(w_i * x_i)``, where each x_i has a weight for each of its rows (or columns).

    Args:
        terms: the x_i.
        weights: the w_i, which are rounded to float32; shape ``(len(terms), rows)`` or, with
            `by_column`, ``(len(terms), row)``.
        row: the number of elements of a row.
        by_column: whether the weights belong to columns; else they belong to rows.
        out: the vector to write to, rounded to its dtype; None to return a new vector as an operand
            for another kernel.

    Returns:
        `out`, or the new vector: float32, or float64 if float32 overflows.
    """
    rounded_weights = np.ascontiguousarray(weights, np.float32)
    return _computed(
        lambda x, to, _: _kernels.weighted_sum_along(x, rounded_weights, row, by_column, to),
        terms,
        out,
    )


def clamp_to_distance(values: Vector, center: Vector, distance: float, out: Vector) -> None:
    """Write ``min(max(x, c - distance), c + distance)``.

    The result is NaN where x or c is NaN, and it is never -0.

    Args:
        values: the vector x, whose elements are limited.
        center: the vector c, from which they may differ by `distance`.
        distance: the largest distance between the result and c, above 0.
        out: the vector to write to, rounded to its dtype.
    """
    _kernels.clamp_to_distance(values, center, distance, out)


def trimmed_mean(vectors: Sequence[Vector], cut: int, out: Vector) -> None:
    """Write the mean of each element's values without the `cut` lowest and the `cut` highest.

    The mean is NaN where any vector has NaN, and it is never -0.
    """
    without_overflow(lambda x, to, _: _kernels.trimmed_mean(x, cut, to), vectors, out)


def variance(vectors: Sequence[Vector]) -> Vector:
    """Return the population variance of each element over several vectors.

    All vectors have the same base, or no vector has a base. The variance is exactly 0 where all
    values are equal. It is computed by Welford's recurrence, without a sum of squares
    (https://doi.org/10.2307/1266577), and each operation is rounded to float32. A variance that is
    too large for float32 is infinite.

    Returns:
        float32.
    """
    out = new_vector(len(vectors[0]))
    _kernels.variance(vectors, out)
    return out


def _computed(compute: Elementwise, terms: Sequence[Vector], out: Vector | None) -> Vector:
    if out is None:
        return intermediate(compute, terms)
    without_overflow(compute, terms, out)
    return out
