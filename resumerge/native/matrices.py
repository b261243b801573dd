"""The compiled kernels that compute by row or by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native.call import call
from resumerge.native.vector import CHUNK, Vector


def column_gram(vectors: Sequence[Vector], row: int) -> np.ndarray:
    """Dot products of each column: float64, shape ``(n, n, row)``."""
    count = len(vectors)
    out, wide = np.empty((count, count, row)), np.empty((count, CHUNK))
    call("column_gram", vectors, count, len(vectors[0]) // max(1, row), row, wide, out)
    return out


def weighted_sum_along(
    terms: Sequence[Vector], weights: np.ndarray, row: int, by_column: bool
) -> Vector:
    """``sum(w_i * x_i)``; `weights` has shape (n, rows) or, `by_column`, (n, columns)."""
    out = np.empty(len(terms[0]), np.float32)
    weights = np.ascontiguousarray(weights, np.float32)
    call(
        "weighted_sum_along",
        terms,
        weights,
        weights.shape[1],
        len(terms),
        row,
        by_column,
        len(out),
        out,
    )
    return Vector(out)
