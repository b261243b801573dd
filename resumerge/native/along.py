"""The compiled kernels that compute by row or by column."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from resumerge.native.library import function
from resumerge.native.vector import CHUNK, Vector, address, passed

_int32, _int64, _pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


def column_gram(vectors: Sequence[Vector], row: int) -> np.ndarray:
    """Dot products of each column: float64, shape ``(n, n, row)``."""
    count = len(vectors)
    out, wide = np.empty((count, count, row)), np.empty((count, CHUNK))
    function("column_gram")(
        passed(vectors),
        _int32(count),
        _int64(len(vectors[0]) // max(1, row)),
        _int64(row),
        _pointer(address(wide)),
        _pointer(address(out)),
    )
    return out


def weighted_sum_along(
    terms: Sequence[Vector], weights: np.ndarray, row: int, by_column: bool
) -> Vector:
    """``sum(w_i * x_i)``, the weights those of each row or of each column: ``(n, …)``."""
    out = np.empty(len(terms[0]), np.float32)
    weights = np.ascontiguousarray(weights, np.float32)
    function("weighted_sum_along")(
        passed(terms),
        _pointer(address(weights)),
        _int64(weights.shape[1]),
        _int32(len(terms)),
        _int64(row),
        _int32(by_column),
        _int64(len(out)),
        _pointer(address(out)),
    )
    return Vector(out)
