"""Random masks from NumPy's Philox, and masks by rank."""

from __future__ import annotations

import numpy as np

from kernel_oracles.selection import keys_of_tensor
from kernel_oracles.vectors import parts, tensor_of
from resumerge.native import Vector

_FIRST_BITS, _MORE_BITS = 0, 1
_INFINITY = 0x7F800000
_PRECISION = 12
"""Bits of a float32 that a rank leaves out: 11 bits of the fraction stay."""
_HIGHEST = 65534
"""The largest of the numbers that are ranked; what is not finite ranks above it."""


def random_mask(
    key: bytes, first: int, block: int, whole: int, fraction: int, out: np.ndarray
) -> None:
    for number, part in enumerate(parts(len(out), block), start=first):
        draw = _bytes(key, number, part.stop - part.start)
        kept = draw < whole
        ties = np.flatnonzero(draw == whole)
        kept[ties] = _words(key, number, _MORE_BITS, len(ties)) < np.uint64(fraction)
        out[part] = kept


def rank_mask(
    vector: Vector,
    key: bytes,
    first: int,
    block: int,
    row: int,
    stride: int,
    density: float,
    reach: float,
    out: np.ndarray,
) -> None:
    spread = abs(reach) if row > 1 else 0.0
    low, high = density - spread, density + spread
    ranks = _ranks(keys_of_tensor(tensor_of(vector), False), row, stride, reach < 0.0)
    for number, part in enumerate(parts(len(out), block), start=first):
        below, between, draws = draw_in_interval(low, high, key, number, part.stop - part.start)
        out[part] = below
        if spread == 0.0:
            out[part][between] = draws < density
        else:  # a tiny reach makes the bounds infinite, or NaN
            bounds = (draws - low) * ((row - 1) / (2.0 * spread))
            out[part][between] = ranks[part][between] > np.fmax(np.fmin(bounds, row), -1.0)


def draw_in_interval(
    low: float, high: float, key: bytes, number: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw uniform numbers of 24 bits in [0, 1), in full only where they may be in an interval.

    Returns:
        Which draws are below `low`; the indices of the elements whose draw may be in the interval;
        the draws of these.
    """
    lowest, highest = int(low * 256.0), int(high * 256.0)
    draw = _bytes(key, number, count)
    between = np.flatnonzero((draw >= lowest) & (draw <= highest))
    words = _words(key, number, _MORE_BITS, -(-len(between) // 4))
    more = words.astype("<u8").view("<u2")[: len(between)]
    return draw < lowest, between, (draw[between] * 65536.0 + more) * 2.0**-24


def _ranks(keys: np.ndarray, row: int, stride: int, descending: bool) -> np.ndarray:
    """Return for each element the mean place of its key, from 0, in its sorted row."""
    rows = keys.reshape(-1, row, stride).swapaxes(1, 2).reshape(-1, row)
    finite = np.where(rows < _INFINITY, rows, 0)
    largest = (finite >> _PRECISION).max(axis=1, keepdims=True, initial=0).astype(np.int64)
    lowest = np.maximum(largest - _HIGHEST, 0)
    places = np.clip((rows >> _PRECISION) - lowest, 0, _HIGHEST + 1)
    found = np.empty(places.shape)
    for of_row, own in zip(found, -places if descending else places):
        ascending = np.sort(own)
        sides = [np.searchsorted(ascending, own, side) for side in ("left", "right")]
        of_row[:] = (sides[0] + sides[1] - 1) / 2.0
    return found.reshape(-1, stride, row).swapaxes(1, 2).reshape(-1)


def _bytes(key: bytes, number: int, count: int) -> np.ndarray:
    """Draw a random byte for each element, as integers."""
    words = _words(key, number, _FIRST_BITS, -(-count // 8))
    return words.astype("<u8").view(np.uint8)[:count].astype(np.int64)


def _words(key: bytes, number: int, stream: int, count: int) -> np.ndarray:
    counter = (number << 128) | (stream << 64)
    bits = np.random.Philox(key=int.from_bytes(key, "little"), counter=counter)
    return bits.random_raw(count)
