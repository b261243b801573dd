"""Vectors whose elements are each computed from the same element of other vectors.

Each product and each sum is rounded to float32, in the order given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native import Vector, _kernels


def new_vector(length: int) -> Vector:
    """Return a vector of float32 whose elements are undefined."""
    return Vector(np.empty(length, np.float32))


def round_to(vector: Vector, out: Vector) -> None:
    """Write a vector into another, rounded to the other's type: to nearest, ties to even."""
    _kernels.round_to(vector, out)


def weighted_sum(terms: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
    """Write ``sum(w_i * x_i)`` of the terms x_i."""
    _kernels.weighted_sum(terms, weights, out)


def weighted_sum_along(
    terms: Sequence[Vector], weights: np.ndarray, row: int, by_column: bool, out: Vector
) -> None:
    """Write ``sum(w_i * x_i)``, where each vector has a weight for each of its rows (or columns).

    Args:
        terms: the x_i.
        weights: the w_i, rounded to float32; shape ``(len(terms), rows)`` or, with `by_column`,
            ``(len(terms), row)``.
        row: the number of elements of a row.
        by_column: whether each column has a weight, not each row.
        out: the result, rounded to its type.
    """
    rounded = np.ascontiguousarray(weights, np.float32)
    _kernels.weighted_sum_along(terms, rounded, row, by_column, out)


def sum_of(terms: Sequence[Vector]) -> Vector:
    """Return the sum of vectors: float32."""
    out = new_vector(len(terms[0]))
    _kernels.weighted_sum(terms, [1.0] * len(terms), out)
    return out


def clamp_to_distance(values: Vector, center: Vector, distance: float, out: Vector) -> None:
    """Write ``min(max(x, c - distance), c + distance)``: NaN where x or c is NaN, and never -0.

    Args:
        values: x.
        center: c.
        distance: the largest distance, above 0.
        out: the result, rounded to its type.
    """
    _kernels.clamp_to_distance(values, center, distance, out)


def trimmed_mean(vectors: Sequence[Vector], cut: int, out: Vector) -> None:
    """Write the mean of each element's values without the `cut` lowest and the `cut` highest.

    The mean is NaN where one vector has NaN, and never -0.
    """
    _kernels.trimmed_mean(vectors, cut, out)


def variance(vectors: Sequence[Vector]) -> Vector:
    """Return the population variance of each element over vectors that have one base, or none.

    The variance is exactly 0 where all are equal. It is computed by Welford's recurrence, which
    needs no sum of squares (https://doi.org/10.2307/1266577), with each operation rounded to
    float32.

    Returns:
        float32.
    """
    out = new_vector(len(vectors[0]))
    _kernels.variance(vectors, out)
    return out
