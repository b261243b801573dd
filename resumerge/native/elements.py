"""The compiled kernels that compute each element from the same element of several models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.native.call import call, floats
from resumerge.native.vector import CHUNK, Vector


def clamp_to_distance(vector: Vector, center: Vector, distance: float) -> Vector:
    """``min(max(x, c - distance), c + distance)``."""
    out = np.empty(len(vector), np.float32)
    call("limited", vector, center, float(distance), len(out), out)
    return Vector(out)


def add_mean_change(
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


def count_changes(vectors: Sequence[Vector], epsilon: float) -> np.ndarray:
    """The number of elements that each vector changed, and that it alone did: int64 ``(n, 2)``."""
    count = len(vectors)
    out, flags = np.empty((count, 2), np.int64), np.empty((count, CHUNK), np.uint32)
    call("changed_counts", vectors, count, float(epsilon), len(vectors[0]), flags, out)
    return out


def add_voted_sum(
    base: Vector,
    vectors: Sequence[Vector],
    weights: Sequence[float],
    thresholds: Sequence[float],
    least: int,
    scale: float,
) -> Vector:
    """``base + scale * sum(w_i * d_i)`` where at least `least` models vote for an element."""
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
    """The mean of each element's values without the `cut` lowest and the `cut` highest."""
    count = len(vectors)
    out, terms = np.empty(len(vectors[0]), np.float32), np.empty((count, CHUNK), np.float32)
    call("trimmed_mean", vectors, count, cut, len(out), terms, out)
    return Vector(out)
