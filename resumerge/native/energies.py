"""The compiled kernels for task vectors weighted by their energies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from resumerge.native.library import function
from resumerge.native.vector import CHUNK, Vector, address, passed

_int32, _int64 = ctypes.c_int32, ctypes.c_int64
_float, _pointer = ctypes.c_float, ctypes.c_void_p


def variance(vectors: Sequence[Vector]) -> Vector:
    """The population variance of each element over vectors of one base."""
    out = np.empty(len(vectors[0]), np.float32)
    function("variance")(
        passed(vectors), _int32(len(vectors)), _int64(len(out)), _pointer(address(out))
    )
    return Vector(out)


def squares(vector: Vector, mask: np.ndarray | None) -> float:
    """``sum(x**2)`` of the elements that a mask of bytes keeps; of all without one."""
    call = function("squares")
    call.restype = ctypes.c_double
    found: float = call(
        passed([vector]), _pointer(None if mask is None else address(mask)), _int64(len(vector))
    )
    return found


def weighted_majority(
    base: Vector, vectors: Sequence[Vector], mask: np.ndarray | None, weights: Sequence[float]
) -> Vector:
    """``base + sum(a_i * w_i * d_i) / sum(a_i * w_i)``, a_i whether the sign is the majority's."""
    count = len(vectors)
    out, terms = np.empty(len(base), np.float32), np.empty((count, CHUNK), np.float32)
    function("weighted_majority")(
        passed([base]),
        passed(vectors),
        _pointer(None if mask is None else address(mask)),
        (_float * count)(*weights),
        _int32(count),
        _int64(len(out)),
        _pointer(address(terms)),
        _pointer(address(out)),
    )
    return Vector(out)
