"""Keys: the bits of float32 as integers in the order of the magnitudes, or of the numbers."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from kernel_oracles.vectors import parts, tensor_of
from resumerge.native import Vector

_SIGN, _MAGNITUDE = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
_INFINITY, _NAN = np.uint32(0x7F800000), np.uint32(0x7FC00000)


def keys(vector: Vector, ordered: bool, out: np.ndarray) -> None:
    out[:] = keys_of_tensor(tensor_of(vector), ordered)


def keys_in_bracket(
    vector: Vector, ordered: bool, low: int, high: int, block: int
) -> tuple[int, bytes, bytes, list[int]]:
    keys, numbers, ends = b"", b"", []
    every = keys_of_tensor(tensor_of(vector), ordered)
    for part in parts(len(every), block):
        here = every[part]
        inside = here[(here >= low) & (here <= high)]
        different, counts = np.unique(inside, return_counts=True)
        keys += different.tobytes()
        numbers += counts.astype(np.uint32).tobytes()
        ends.append(len(keys) // 4)
    return int((every > high).sum()), keys, numbers, ends


def key_of_rank(keys: np.ndarray, counts: np.ndarray, rank: int) -> tuple[int, int] | None:
    descending = np.argsort(keys)[::-1]
    above = np.cumsum(counts[descending].astype(np.int64))
    if not 1 <= rank <= counts.sum(dtype=np.int64):
        return None
    key = int(keys[descending[np.searchsorted(above, rank)]])
    return key, rank - int(counts[keys > key].sum(dtype=np.int64))


def equal_counts(vector: Vector, ordered: bool, key: int, block: int) -> list[int]:
    every = keys_of_tensor(tensor_of(vector), ordered)
    return [int((every[part] == key).sum()) for part in parts(len(every), block)]


def mask_above(vector: Vector, ordered: bool, threshold: int, quota: int, out: np.ndarray) -> None:
    out[:] = mask_of_threshold(tensor_of(vector), ordered, threshold, quota)


def mask_of_threshold(values: Tensor, ordered: bool, threshold: int, quota: int) -> np.ndarray:
    """Return 1 above the threshold, and for the first `quota` elements that are equal to it."""
    every = keys_of_tensor(values, ordered)
    kept = every > threshold
    kept[np.flatnonzero(every == threshold)[:quota]] = True
    return kept.astype(np.uint8)


def keys_of_tensor(values: Tensor, ordered: bool) -> np.ndarray:
    bits = values.numpy().view(np.uint32)
    magnitudes = np.where((bits & _MAGNITUDE) > _INFINITY, _NAN, bits & _MAGNITUDE)
    if not ordered:
        return magnitudes
    negative = (bits & _SIGN != 0) & (magnitudes != _NAN)
    found: np.ndarray = np.where(negative, ~bits, magnitudes | _SIGN)
    return found
