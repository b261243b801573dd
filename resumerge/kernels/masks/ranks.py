"""Masks by rank, as in DELLA (https://arxiv.org/abs/2406.11617)."""

from __future__ import annotations

from typing import Any

import numpy as np

from resumerge.kernels.blocks import Block
from resumerge.kernels.masks.random import draw_in_interval, philox_key
from resumerge.kernels.selection.keys import INFINITY, magnitude_bits
from resumerge.native import Vector, calls

_PRECISION = 12
"""Bits of a float32 that its key leaves out: 11 bits of the fraction stay."""
_HIGHEST = 65534
"""Key of a row's largest number; what is not finite comes above it."""


def rank_mask(
    values: Any,
    row: int,
    density: float,
    epsilon: float,
    key: str,
    block: Block,
    stride: int = 1,
) -> np.ndarray:
    """A mask in which each element is kept with a probability that grows with its rank.

    The probability is ``density - epsilon + 2 * epsilon * rank / (row - 1)``; the rank, from 0, is
    by magnitude among the elements of the row. Magnitudes that agree to 11 bits after the leading
    one share the mean of their ranks, and so do those below a 2^32nd of the row's largest; NaN and
    infinity rank highest. In a row of length 1 the probability is `density`.

    Only elements whose draw lies between the least and the greatest probability need a rank, and
    only whether it is above a bound that the draw determines, which the sorted row tells. Keys of
    16 bits are sorted by radix, several times faster than floats.

    Args:
        values: float32, flat, whole rows.
        row: elements of a row.
        density, epsilon: ``0 < density - abs(epsilon)`` and ``density + abs(epsilon) < 1``; with a
            negative epsilon, smaller elements are likelier kept.
        key: text that identifies the mask.
        stride: distance between the elements of a row; ``row * stride`` consecutive elements hold
            `stride` rows.

    Returns:
        uint8 of 0 and 1, of the shape of `values`.
    """
    if isinstance(values, Vector):
        return calls.rank_mask(values, philox_key(key), block.index, row, stride, density, epsilon)
    spread = abs(epsilon) if row > 1 else 0.0
    low, high = density - spread, density + spread
    mask, between, draws = draw_in_interval(low, high, key, block, len(values))
    if spread == 0.0:
        mask[between] = draws < density
        return mask
    rows = magnitude_bits(values).reshape(-1, row, stride).swapaxes(1, 2).reshape(-1, row)
    keys = _keys(rows)
    if epsilon < 0.0:
        keys = ~keys
    place = between if stride == 1 else _place_in_rows(between, row, stride)
    bounds = (draws - low) * ((row - 1) / (2.0 * spread))
    bounds = np.fmax(np.fmin(bounds, row), -1.0)  # a tiny epsilon makes them infinite, or NaN
    mask[between] = _ranks_above(keys, place, bounds)
    return mask


def _keys(rows: np.ndarray) -> np.ndarray:
    """Keys ordered as the magnitudes of each row are: uint16.

    Args:
        rows: bits of magnitudes, shape (rows, row).
    """
    finite = rows if rows.max(initial=0) < INFINITY else np.where(rows < INFINITY, rows, 0)
    largest = finite.max(axis=1, keepdims=True) >> _PRECISION
    lowest = np.maximum(largest, _HIGHEST) - np.uint32(_HIGHEST)
    keys = np.maximum(rows >> _PRECISION, lowest)
    keys -= lowest
    result: np.ndarray = np.minimum(keys, _HIGHEST + 1, out=keys).astype(np.uint16)
    return result


def _place_in_rows(elements: np.ndarray, row: int, stride: int) -> np.ndarray:
    """Where elements are once rows that were `stride` apart lie one after the other."""
    run, inside = np.divmod(elements, row * stride)
    result: np.ndarray = run * (row * stride) + inside % stride * row + inside // stride
    return result


def _ranks_above(keys: np.ndarray, chosen: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Whether the ranks of some elements within their rows are above bounds.

    Args:
        keys: uint16, shape (rows, row).
        chosen: flat indices of the elements in question.
        bounds: float64, one for each of them.
    """
    row = keys.shape[1]
    ascending = np.sort(keys, axis=1, kind="stable").reshape(-1)  # by radix, being of 16 bits
    least = np.floor(bounds).astype(np.int64) + 1  # the smallest whole rank above a bound
    first = chosen // row * row  # of the element's row
    there = ascending[first + np.clip(least, 0, row - 1)]
    own = keys.reshape(-1)[chosen]
    above: np.ndarray = (own > there) & (least < row) | (least <= 0)
    equal = np.flatnonzero((own == there) & (least > 0) & (least < row))
    if len(equal):
        start = first[equal]
        ranks = _mean_places(ascending, start + least[equal], row) - start
        above[equal] = ranks > bounds[equal]
    return above


def _mean_places(ascending: np.ndarray, places: np.ndarray, row: int) -> np.ndarray:
    """The mean place of the run of equal keys that each place lies in."""
    begins = np.empty(len(ascending) + 1, bool)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:-1])
    begins[::row] = True
    starts = np.flatnonzero(begins)
    runs = np.searchsorted(starts, places, side="right") - 1
    return (starts[runs] + starts[runs + 1] - 1) / 2.0
