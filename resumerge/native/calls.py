"""The compiled kernels as functions of vectors; `resumerge.kernels` defines what each computes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from resumerge.native.call import call, enough_memory, floats
from resumerge.native.vector import Vector, address

CONSENSUS, NORMALIZE = 1, 2
MAGNITUDE, ORDERED = 0, 1


def weighted_sum(terms: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """``sum(w_i * x_i)``."""
    out = np.empty(len(terms[0]), np.float32)
    call("weighted_sum", terms, floats(weights), len(terms), len(out), out)
    return Vector(out)


def round_to(vector: Vector, dtype: int, out: np.ndarray) -> None:
    """Write a vector into `out`, rounded to another element type."""
    call("round_to", vector, len(vector), dtype, out)


def read_ranges(ranges: Sequence[tuple[int, int, int]], to: Sequence[Vector]) -> bool:
    """Read ranges of open files, (file, offset, length in bytes) each, into vectors.

    Returns:
        False if a range could not be read, or a file was too short.
    """
    fields = [
        x for (file, at, size), vector in zip(ranges, to) for x in (vector.at, at, size, file)
    ]
    packed = struct.pack("Pqqq" * len(ranges), *fields)
    return not call("read_ranges", packed, len(ranges))


def gram(vectors: Sequence[Vector], rows: int = 1) -> np.ndarray:
    """Dot products of each of the vectors' rows: float64, shape ``(n, n, rows)``."""
    count, row = len(vectors), len(vectors[0]) // max(1, rows)
    out = np.empty((count, count, rows))
    enough_memory(call("gram", vectors, count, rows, row, out))
    return out


def l1_norms(vector: Vector, mask: np.ndarray | None) -> tuple[float, float]:
    """``sum(|x|)`` of all elements, and of those that a mask (uint8) keeps; 0 without a mask."""
    out = (ctypes.c_double * 2)()
    call("absolute_sums", vector, mask, len(vector), out)
    return out[0], out[1]


@dataclass(frozen=True)
class Threshold:
    """In place of a mask: keeps magnitudes above a threshold, and the first of equal ones.

    Args:
        bits: of the magnitude, as an integer.
        quota: number of elements equal to it that are kept.
    """

    bits: int
    quota: int


def combine(
    base: Vector,
    vectors: Sequence[Vector],
    masks: Sequence[np.ndarray | Threshold | None],
    factors: Sequence[float],
    weights: Sequence[float],
    flags: int,
    scale: float,
) -> Vector:
    """Sparse task vectors, combined and added to the base that they are differences from."""
    count = len(vectors)
    out = np.empty(len(base), np.float32)
    enough_memory(
        call(
            "combine",
            base.data,
            base.dtype,
            vectors,
            (ctypes.c_void_p * count)(*map(_bytes_of, masks)),
            (ctypes.c_uint32 * count)(*(m.bits if isinstance(m, Threshold) else 0 for m in masks)),
            (ctypes.c_int64 * count)(*(m.quota if isinstance(m, Threshold) else -1 for m in masks)),
            floats(factors),
            floats(weights),
            count,
            flags,
            float(scale),
            len(out),
            out,
        )
    )
    return Vector(out)


def keys(vector: Vector, kind: int) -> np.ndarray:
    """The keys of all elements: uint32."""
    out = np.empty(len(vector), np.uint32)
    call("keys", vector, len(out), kind, out)
    return out


def keys_in_bracket(
    vector: Vector, kind: int, low: int, high: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of keys above a bracket; the distinct keys inside, and the count of each."""
    above = ctypes.c_int64()
    found = np.empty(len(vector), np.uint32)
    counts = np.empty(len(vector), np.uint32)
    different = enough_memory(
        call("around", vector, len(vector), kind, low, high, ctypes.byref(above), found, counts)
    )
    return above.value, found[:different].copy(), counts[:different].copy()


def equal_count(vector: Vector, kind: int, key: int) -> int:
    """The number of elements with a key."""
    return call("equal_count", vector, len(vector), kind, key)


def mask_above(vector: Vector, kind: int, threshold: int, quota: int) -> np.ndarray:
    """1 where a key is above a threshold, and for the first `quota` that are equal to it."""
    mask = np.empty(len(vector), np.uint8)
    call("mask_above", vector, len(vector), kind, threshold, quota, mask)
    return mask


def random_mask(key: int, block: int, whole: int, fraction: int, count: int) -> np.ndarray:
    """1 where a byte is below `whole`, and where it is equal and 64 more bits below `fraction`."""
    mask = np.empty(count, np.uint8)
    call("random_mask", _seed(key, block), whole, fraction, count, mask)
    return mask


def rank_mask(
    vector: Vector, key: int, block: int, row: int, stride: int, density: float, reach: float
) -> np.ndarray:
    """1 for elements drawn with probabilities that grow with their ranks in their rows, else 0."""
    mask = np.empty(len(vector), np.uint8)
    enough_memory(
        call(
            "kept_by_rank",
            vector,
            _seed(key, block),
            len(mask),
            row,
            stride,
            float(density),
            float(reach),
            mask,
        )
    )
    return mask


def _seed(key: int, block: int) -> ctypes.Array[ctypes.c_uint64]:
    """A key of 128 bits, and the number of a block."""
    return (ctypes.c_uint64 * 3)(key & (1 << 64) - 1, key >> 64, block)


def _bytes_of(mask: np.ndarray | Threshold | None) -> int | None:
    return address(mask) if isinstance(mask, np.ndarray) else None
