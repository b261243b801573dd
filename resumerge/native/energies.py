"""The compiled kernels for task vectors weighted by their energies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from resumerge.native.call import call, floats
from resumerge.native.vector import CHUNK, Vector


def variance(vectors: Sequence[Vector]) -> Vector:
    """The population variance of each element over vectors of one base."""
    out = np.empty(len(vectors[0]), np.float32)
    call("variance", vectors, len(vectors), len(out), out)
    return Vector(out)


def sum_of_squares(vector: Vector, mask: np.ndarray | None) -> float:
    """``sum(x**2)`` of the elements that a mask (uint8) keeps; of all without a mask."""
    out = (ctypes.c_double * 1)()
    call("squares", vector, mask, len(vector), out)
    return out[0]


def add_majority_mean(
    base: Vector, vectors: Sequence[Vector], mask: np.ndarray | None, weights: Sequence[float]
) -> Vector:
    """``base + sum(a_i * w_i * d_i) / sum(a_i * w_i)``, a_i whether the sign is the majority's."""
    count = len(vectors)
    out, terms = np.empty(len(base), np.float32), np.empty((count, CHUNK), np.float32)
    call("weighted_majority", base, vectors, mask, floats(weights), count, len(out), terms, out)
    return Vector(out)
