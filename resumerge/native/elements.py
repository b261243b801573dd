"""The compiled kernels that compute each element from those of several models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native.call import call, floats
from resumerge.native.vector import CHUNK, Vector


def limited(vector: Vector, middle: Vector, reach: float) -> Vector:
    """``min(max(x, m - reach), m + reach)``."""
    out = np.empty(len(vector), np.float32)
    call("limited", vector, middle, float(reach), len(out), out)
    return Vector(out)


def averaged_changes(
    base: Vector, vectors: Sequence[Vector], epsilon: float, factors: Sequence[float]
) -> Vector:
    """``base + sum(f_i * d_i) / c`` over the c models that changed an element."""
    count = len(vectors)
    out, terms = np.empty(len(base), np.float32), np.empty((count, CHUNK), np.float32)
    call(
        "averaged_changes",
        base,
        vectors,
        floats(factors),
        count,
        float(epsilon),
        len(out),
        terms,
        out,
    )
    return Vector(out)


def changed_counts(vectors: Sequence[Vector], epsilon: float) -> np.ndarray:
    """How many elements each vector changed, and how many of these alone: int64 ``(n, 2)``."""
    count = len(vectors)
    out, flags = np.empty((count, 2), np.int64), np.empty((count, CHUNK), np.uint32)
    call("changed_counts", vectors, count, float(epsilon), len(vectors[0]), flags, out)
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
    call(
        "voted_sum",
        base,
        vectors,
        floats(weights),
        floats(thresholds),
        count,
        least,
        float(scale),
        len(out),
        terms,
        out,
    )
    return Vector(out)


def trimmed_mean(vectors: Sequence[Vector], cut: int) -> Vector:
    """The mean of each element's values without so many at either end."""
    count = len(vectors)
    out, terms = np.empty(len(vectors[0]), np.float32), np.empty((count, CHUNK), np.float32)
    call("trimmed_mean", vectors, count, cut, len(out), terms, out)
    return Vector(out)
