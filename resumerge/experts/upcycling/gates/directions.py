"""Directions of gates: vectors of length 1."""

from __future__ import annotations

import math

import numpy as np

SMALLEST_NORM = 1e-8
"""The smallest divisor of a vector; a vector of smaller norm is divided by this."""


def unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector divided by its norm, as float64; a vector of almost zero stays shorter.

    The squares are summed exactly, so that the bits do not depend on a library.
    """
    norm = math.sqrt(math.fsum((vector * vector).tolist()))
    result: np.ndarray = vector / max(norm, SMALLEST_NORM)
    return result
