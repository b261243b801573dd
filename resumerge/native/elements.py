"""The compiled kernels that compute each element from those of several models."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from resumerge.native.library import function
from resumerge.native.vector import CHUNK, Vector, address, passed

_int32, _int64 = ctypes.c_int32, ctypes.c_int64
_float, _pointer = ctypes.c_float, ctypes.c_void_p


def limited(vector: Vector, middle: Vector, reach: float) -> Vector:
    """``min(max(x, m - reach), m + reach)``."""
    out = np.empty(len(vector), np.float32)
    function("limited")(
        passed([vector]),
        passed([middle]),
        _float(reach),
        _int64(len(out)),
        _pointer(address(out)),
    )
    return Vector(out)


def averaged_changes(
    base: Vector, vectors: Sequence[Vector], epsilon: float, factors: Sequence[float]
) -> Vector:
    """``base + sum(f_i * d_i) / c`` over the c models that changed an element."""
    count = len(vectors)
    out, terms = np.empty(len(base), np.float32), np.empty((count, CHUNK), np.float32)
    function("averaged_changes")(
        passed([base]),
        passed(vectors),
        (_float * count)(*factors),
        _int32(count),
        _float(epsilon),
        _int64(len(out)),
        _pointer(address(terms)),
        _pointer(address(out)),
    )
    return Vector(out)


def changed_counts(vectors: Sequence[Vector], epsilon: float) -> np.ndarray:
    """How many elements each vector changed, and how many of these alone: int64 ``(n, 2)``."""
    count = len(vectors)
    out, flags = np.empty((count, 2), np.int64), np.empty((count, CHUNK), np.uint32)
    function("changed_counts")(
        passed(vectors),
        _int32(count),
        _float(epsilon),
        _int64(len(vectors[0])),
        _pointer(address(flags)),
        _pointer(address(out)),
    )
    return out


def voted_sum(
    base: Vector,
    vectors: Sequence[Vector],
    weights: Sequence[float],
    thresholds: Sequence[float],
    least: int,
    scale: float,
) -> Vector:
    """``base + scale * sum(w_i * d_i)`` where so many models vote for an element."""
    count = len(vectors)
    out, terms = np.empty(len(base), np.float32), np.empty((count, CHUNK), np.float32)
    function("voted_sum")(
        passed([base]),
        passed(vectors),
        (_float * count)(*weights),
        (_float * count)(*thresholds),
        _int32(count),
        _int32(least),
        _float(scale),
        _int64(len(out)),
        _pointer(address(terms)),
        _pointer(address(out)),
    )
    return Vector(out)


def trimmed_mean(vectors: Sequence[Vector], cut: int) -> Vector:
    """The mean of each element's values without so many at either end."""
    count = len(vectors)
    out, terms = np.empty(len(vectors[0]), np.float32), np.empty((count, CHUNK), np.float32)
    function("trimmed_mean")(
        passed(vectors),
        _int32(count),
        _int32(cut),
        _int64(len(out)),
        _pointer(address(terms)),
        _pointer(address(out)),
    )
    return Vector(out)
