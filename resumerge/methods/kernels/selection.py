"""Exactly the k elements of largest magnitude, without sorting and in constant memory.

The bits of a non-negative float32, read as an integer, are ordered as the float is. Two histograms
over them (the upper 16 bits, then the lower 15 of the bin that the k-th falls into) give the k-th
magnitude exactly. Elements equal to it are kept in the order of their index until k are kept.
NaN counts as larger than any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resumerge.methods.kernels.masks import keep_only
from resumerge.methods.method import Block

_LOW_BITS = 15
_BINS, _LOW_BINS = 1 << 16, 1 << _LOW_BITS

Vectors = dict[int, Tensor]
ScanVectors = Callable[[Callable[[Vectors, Block], Any]], Iterator[Any]]


@dataclass
class Selection:
    """Which elements of one vector are kept.

    Args:
        threshold: bits of the k-th magnitude; elements above it are kept.
        equal: how many elements equal to it are kept, counted from the first
            index; 0 keeps nothing at all.
        before: for each block, how many elements equal to it stand in the blocks before; empty
            where all of them are kept.
    """

    threshold: int
    equal: int
    before: list[int] = field(default_factory=list)

    def apply(self, values: Tensor, block: Block) -> Tensor:
        """Set the elements that are not kept to zero, in place."""
        if self.equal == 0:
            return values.zero_()
        bits = magnitude_bits(values)
        if not self.before:
            return keep_only(values, torch.from_numpy(bits >= self.threshold))
        kept = bits > self.threshold
        quota = self.equal - self.before[block.index]
        if quota > 0:
            kept[np.flatnonzero(bits == self.threshold)[:quota]] = True
        return keep_only(values, torch.from_numpy(kept))


def magnitude_bits(values: Tensor) -> np.ndarray:
    """The bits of ``abs(values)``: int32, ordered as the magnitudes are.

    In NumPy, whose integer comparisons and selections are several times faster than torch's.
    """
    return values.cpu().numpy().view(np.int32) & np.int32(0x7FFFFFFF)


def select_largest(kept: Mapping[int, int], scan: ScanVectors) -> dict[int, Selection]:
    """Find the largest magnitudes of several vectors at once.

    Args:
        kept: for each vector, how many elements to keep, at most its length.
        scan: runs a function over every block of the vectors.
    """
    found = {i: Selection(threshold=0, equal=0) for i, k in kept.items() if k == 0}
    wanted = {i: k for i, k in kept.items() if k > 0}
    if not wanted:
        return found
    upper = {i: np.zeros(_BINS, np.int64) for i in wanted}
    for part in scan(lambda v, block: {i: _histogram(v[i]) for i in wanted}):
        for i, counts in part.items():
            upper[i] += counts
    bins = {i: _bin_of(upper[i], k) for i, k in wanted.items()}
    lower = {i: np.zeros(_LOW_BINS, np.int64) for i in wanted}
    for part in scan(lambda v, block: {i: _low_histogram(v[i], bins[i][0]) for i in wanted}):
        for i, counts in part.items():
            lower[i] += counts
    for i, (upper_bin, rest) in bins.items():
        low, equal = _bin_of(lower[i], rest)
        found[i] = Selection((upper_bin << _LOW_BITS) | low, equal)
    split = [i for i in wanted if found[i].equal < lower[i][found[i].threshold & (_LOW_BINS - 1)]]
    if split:
        rows = list(scan(lambda v, block: [_count(v[i], found[i].threshold) for i in split]))
        for i, counts in zip(split, zip(*rows)):
            found[i].before = [0, *accumulate(counts)][:-1]
    return found


def _histogram(values: Tensor) -> np.ndarray:
    upper = magnitude_bits(values) >> _LOW_BITS
    return torch.bincount(torch.from_numpy(upper), minlength=_BINS).numpy()


def _low_histogram(values: Tensor, upper_bin: int) -> np.ndarray:
    bits = magnitude_bits(values)
    inside = bits[bits >> _LOW_BITS == upper_bin] & (_LOW_BINS - 1)
    return torch.bincount(torch.from_numpy(inside), minlength=_LOW_BINS).numpy()


def _bin_of(counts: np.ndarray, k: int) -> tuple[int, int]:
    """The bin that the k-th largest falls into, and its rank within that bin (from 1)."""
    above = np.cumsum(counts[::-1])
    position = int(np.searchsorted(above, k))
    found = len(counts) - 1 - position
    return found, k - int(above[position] - counts[found])


def _count(values: Tensor, threshold: int) -> int:
    return int(np.count_nonzero(magnitude_bits(values) == threshold))
