"""The compiled kernels as functions of vectors. What each computes is said where it is used."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resumerge.native.library import function
from resumerge.native.vector import Vector, address, passed

if TYPE_CHECKING:
    import numpy as np
else:
    from resumerge import numpy_later as np

_int32, _int64 = ctypes.c_int32, ctypes.c_int64
_uint8, _uint32, _uint64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
_float, _double, _pointer = ctypes.c_float, ctypes.c_double, ctypes.c_void_p

CONSENSUS, NORMALIZE = 1, 2
MAGNITUDE, ORDERED = 0, 1
_SPILL = 16
"""Elements that picking out may write behind the last one."""


def weighted_sum(terms: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """``sum(w_i * x_i)``."""
    out = np.empty(len(terms[0]), np.float32)
    function("weighted_sum")(
        passed(terms),
        (_float * len(weights))(*weights),
        _int32(len(terms)),
        _int64(len(out)),
        _pointer(address(out)),
    )
    return Vector(out)


def round_to(vector: Vector, dtype: int, out: np.ndarray) -> None:
    """Write a vector in another element type; `out` is as many bytes as it takes."""
    function("round_to")(
        passed([vector]), _int64(len(vector)), _int32(dtype), _pointer(address(out))
    )


def read_ranges(ranges: Sequence[tuple[int, int, int]], to: Sequence[Vector]) -> bool:
    """Read ranges of open files, (file, offset, length in bytes) each, into vectors.

    Returns:
        False where something could not be read, or was not there.
    """
    fields = [
        x for (file, at, size), vector in zip(ranges, to) for x in (vector.at, at, size, file)
    ]
    packed = struct.pack("Pqqq" * len(ranges), *fields)
    return not function("read_ranges")(packed, _int32(len(ranges)))


def gram(vectors: Sequence[Vector], rows: int = 1) -> np.ndarray:
    """Dot products of each of so many rows of one length: float64, shape ``(n, n, rows)``."""
    count, row = len(vectors), len(vectors[0]) // max(1, rows)
    out = np.empty((count, count, rows))
    _enough_memory(
        function("gram")(
            passed(vectors), _int32(count), _int64(rows), _int64(row), _pointer(address(out))
        )
    )
    return out


def absolute_sums(vector: Vector, mask: np.ndarray | None) -> tuple[float, float]:
    """``sum(|x|)`` of all elements, and of those that a mask of bytes keeps (0 without one)."""
    out = (ctypes.c_double * 2)()
    function("absolute_sums")(passed([vector]), _mask(mask), _int64(len(vector)), out)
    return out[0], out[1]


@dataclass(frozen=True)
class Above:
    """What keeps the elements whose magnitudes are above a threshold, and the first equal ones.

    Args:
        threshold: bits of the magnitude.
        quota: how many elements equal to it are kept.
    """

    threshold: int
    quota: int


def combine(
    base: Vector,
    vectors: Sequence[Vector],
    masks: Sequence[np.ndarray | Above | None],
    factors: Sequence[float],
    weights: Sequence[float],
    flags: int,
    scale: float,
) -> Vector:
    """Task vectors made sparse, combined, and added to the base that they are differences from."""
    count = len(vectors)
    out = np.empty(len(base), np.float32)
    _enough_memory(
        function("combine")(
            _pointer(address(base.data)),
            _int32(base.dtype),
            passed(vectors),
            (_pointer * count)(*(address(m) if isinstance(m, np.ndarray) else None for m in masks)),
            (_uint32 * count)(*(m.threshold if isinstance(m, Above) else 0 for m in masks)),
            (_int64 * count)(*(m.quota if isinstance(m, Above) else -1 for m in masks)),
            (_float * count)(*factors),
            (_float * count)(*weights),
            _int32(count),
            _int32(flags),
            _float(scale),
            _int64(len(out)),
            _pointer(address(out)),
        )
    )
    return Vector(out)


def keys(vector: Vector, kind: int) -> np.ndarray:
    """The keys of all elements: uint32."""
    out = np.empty(len(vector), np.uint32)
    function("keys")(passed([vector]), _int64(len(out)), _int32(kind), _pointer(address(out)))
    return out


def around(vector: Vector, kind: int, low: int, high: int) -> tuple[int, np.ndarray, np.ndarray]:
    """How many keys are above a bracket; the different ones inside, and how many have each."""
    above = _int64()
    found = np.empty(len(vector) + _SPILL, np.uint32)
    counts = np.empty(len(vector), np.uint32)
    different = function("around")(
        passed([vector]),
        _int64(len(vector)),
        _int32(kind),
        _uint32(low),
        _uint32(high),
        ctypes.byref(above),
        _pointer(address(found)),
        _pointer(address(counts)),
    )
    _enough_memory(different)
    return above.value, found[:different].copy(), counts[:different].copy()


def equal_count(vector: Vector, kind: int, key: int) -> int:
    """How many elements have a key."""
    counted: int = function("equal_count")(
        passed([vector]), _int64(len(vector)), _int32(kind), _uint32(key)
    )
    return counted


def mask_above(vector: Vector, kind: int, threshold: int, quota: int) -> np.ndarray:
    """1 where a key is above a threshold, and for the first `quota` that are equal to it."""
    mask = np.empty(len(vector), np.uint8)
    function("mask_above")(
        passed([vector]),
        _int64(len(vector)),
        _int32(kind),
        _uint32(threshold),
        _int64(quota),
        _pointer(address(mask)),
    )
    return mask


def random_mask(key: int, block: int, whole: int, fraction: int, count: int) -> np.ndarray:
    """1 where a byte is below `whole`, and where it is equal and 64 more bits below `fraction`."""
    mask = np.empty(count, np.uint8)
    function("random_mask")(
        _seed(key, block), _uint8(whole), _uint64(fraction), _int64(count), _pointer(address(mask))
    )
    return mask


def kept_by_rank(
    vector: Vector, key: int, block: int, row: int, stride: int, density: float, reach: float
) -> np.ndarray:
    """1 for elements drawn with probabilities that grow with their ranks in their rows, else 0."""
    mask = np.empty(len(vector), np.uint8)
    _enough_memory(
        function("kept_by_rank")(
            passed([vector]),
            _seed(key, block),
            _int64(len(mask)),
            _int64(row),
            _int64(stride),
            _double(density),
            _double(reach),
            _pointer(address(mask)),
        )
    )
    return mask


def _seed(key: int, block: int) -> ctypes.Array[ctypes.c_uint64]:
    """A key of 128 bits, and the number of a block."""
    return (_uint64 * 3)(key & (1 << 64) - 1, key >> 64, block)


def _mask(mask: np.ndarray | None) -> ctypes.c_void_p:
    return _pointer(None if mask is None else address(mask))


def _enough_memory(result: int) -> None:
    if result < 0:
        raise MemoryError("no memory for a kernel's scratch")
