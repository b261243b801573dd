"""Masks by rank: the larger an element among those of its row, the likelier it is kept."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from resumerge.methods.kernels.random import draw_between
from resumerge.methods.kernels.selection import LARGEST_MAGNITUDE, magnitude_bits
from resumerge.methods.method import Block

Bits = np.ndarray


def kept_by_rank(
    values: Tensor,
    row: int,
    density: float,
    reach: float,
    key: str,
    block: Block,
    stride: int = 1,
) -> np.ndarray:
    """A mask in which each element is kept with a probability that grows with its rank.

    The probability is ``density - reach + 2 * reach * rank / (row - 1)``; the rank is by magnitude
    among the elements of the row, from 0. Equal magnitudes share the mean of their ranks; NaN is
    larger than any number. In a row of length 1 the probability is `density`.

    Only draws between the least and the greatest probability need a rank; and of these, none needs
    its own: what has to be known is whether it is above a rank that the draw determines, which the
    sorted row tells (of 2^20 elements in rows of 2048: 18 ms, where ranking them all takes 119).

    Args:
        values: float32, flat, whole rows.
        row: elements of a row.
        density, reach: ``0 < density - abs(reach)`` and ``density + abs(reach) < 1``; a negative
            reach favours the smaller ones.
        key: names the mask.
        stride: how far apart the elements of a row are; ``row * stride`` elements in a run hold
            `stride` rows.

    Returns:
        uint8 of 0 and 1, of the shape of `values`.
    """
    spread = abs(reach) if row > 1 else 0.0
    low, high = density - spread, density + spread
    mask, between, draws = draw_between(low, high, key, block, len(values))
    if spread == 0.0:
        mask[between] = draws < density
        return mask
    bits = magnitude_bits(values)
    if reach < 0.0:
        bits = LARGEST_MAGNITUDE - bits
    mask[between] = _ranks_above(
        bits, between, (draws - low) / (2.0 * spread) * (row - 1), row, stride
    )
    return mask


def _ranks_above(
    bits: Bits, chosen: np.ndarray, bounds: np.ndarray, row: int, stride: int
) -> np.ndarray:
    """Whether the ranks of some elements within their rows are above bounds.

    Args:
        bits: keys of all elements.
        chosen: indices of the elements in question, ascending.
        bounds: float64, one for each of them.
    """
    rows = bits.reshape(-1, row, stride).swapaxes(1, 2).reshape(-1, row)
    ascending = np.sort(rows, axis=1).reshape(-1)
    least = np.floor(bounds).astype(np.int64) + 1  # the smallest whole rank above a bound
    above = least <= 0
    open_ = np.flatnonzero((least > 0) & (least < row))
    element = chosen[open_]
    first = element // row * row  # of the element's sorted row
    if stride > 1:
        run = row * stride
        first = element // run * run + element % stride * row
    place = first + least[open_]
    own, there = bits[element], ascending[place]
    above[open_] = own > there
    equal = np.flatnonzero(own == there)
    if len(equal):
        ranks = _mean_places(ascending, place[equal], row) - first[equal]
        above[open_[equal]] = ranks > bounds[open_[equal]]
    return above


def _mean_places(ascending: Bits, places: np.ndarray, row: int) -> np.ndarray:
    """The mean place of the run of equal keys that each place lies in."""
    begins = np.empty(len(ascending) + 1, bool)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:-1])
    begins[::row] = True
    starts = np.flatnonzero(begins)
    runs = np.searchsorted(starts, places, side="right") - 1
    return (starts[runs] + starts[runs + 1] - 1) / 2.0
