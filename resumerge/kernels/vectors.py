"""Vectors of float32, and copies of vectors."""

from __future__ import annotations

import numpy as np

from resumerge.native import Vector, _kernels


def new_vector(length: int) -> Vector:
    """A vector of float32 whose elements are undefined."""
    return Vector(np.empty(length, np.float32))


def round_to(vector: Vector, out: Vector) -> None:
    """Write a vector into another, rounded to its type: to nearest, ties to even."""
    _kernels.round_to(vector, out)
