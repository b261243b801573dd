"""Order statistics of whole vectors, exactly, without sorting and in constant memory.

The bits of a float32, its sign bit put aside or folded in, are ordered as the float is. Two
histograms over them (the upper 16 bits, then the lower 16 of the bin that the k-th falls into) give
the k-th largest exactly. Elements equal to it are kept in the order of their index until k are
kept. NaN counts as larger than any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resumerge.methods.kernels.masks import keep_only
from resumerge.methods.method import Block

_LOW_BITS = 16
_BINS = 1 << _LOW_BITS
_SIGN = np.uint32(0x80000000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_NAN_KEY = np.uint32(0xFFC00000)

Bits = np.ndarray
Vectors = dict[int, Tensor]
ScanVectors = Callable[[Callable[[Vectors, Block], Any]], Iterator[Any]]
Key = Callable[[Tensor], Bits]


@dataclass
class Selection:
    """Which elements of one vector are the k largest.

    Args:
        threshold: key of the k-th largest; elements above it are kept.
        equal: how many elements equal to it are kept, counted from the first
            index; 0 keeps nothing at all.
        before: for each block, how many elements equal to it stand in the blocks before; empty
            where all of them are kept.
    """

    threshold: int
    equal: int
    before: list[int] = field(default_factory=list)

    def mask(self, bits: Bits, block: Block) -> np.ndarray:
        """True where an element of the block is kept.

        Args:
            bits: the keys of the block's elements.
        """
        if self.equal == 0:
            return np.zeros(len(bits), bool)
        threshold = np.uint32(self.threshold)
        if not self.before:
            return bits >= threshold
        kept = bits > threshold
        quota = self.equal - self.before[block.index]
        if quota > 0:
            kept[np.flatnonzero(bits == threshold)[:quota]] = True
        return kept

    def apply(self, values: Tensor, block: Block) -> Tensor:
        """Set the elements that are not kept to zero, in place; the keys are magnitudes."""
        if self.equal == 0:
            return values.zero_()
        return keep_only(values, torch.from_numpy(self.mask(magnitude_bits(values), block)))


@dataclass
class Band:
    """The elements that are among the `outer` largest magnitudes but not among the `inner`."""

    outer: Selection
    inner: Selection

    def apply(self, values: Tensor, block: Block) -> Tensor:
        """Set the elements outside the band to zero, in place."""
        bits = magnitude_bits(values)
        kept = self.outer.mask(bits, block)
        kept &= ~self.inner.mask(bits, block)
        return keep_only(values, torch.from_numpy(kept))


def magnitude_bits(values: Tensor) -> Bits:
    """The bits of ``abs(values)``: uint32, ordered as the magnitudes are.

    In NumPy, whose integer comparisons and selections are several times faster than torch's.
    """
    return values.cpu().numpy().view(np.uint32) & _MAGNITUDE


def ordered_bits(values: Tensor) -> Bits:
    """Keys of signed numbers: uint32, ordered as the numbers are; -0 is below 0, NaN above all."""
    bits = values.cpu().numpy().view(np.uint32)
    keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    keys[(bits & _MAGNITUDE) > _INFINITY] = _NAN_KEY
    return keys


def from_ordered_bits(key: int) -> float:
    """The number that `ordered_bits` gives this key."""
    bits = np.uint32(key)
    return float((bits ^ _SIGN if bits & _SIGN else ~bits).view(np.float32))


def select_largest(kept: Mapping[int, int], scan: ScanVectors) -> dict[int, Selection]:
    """Find the largest magnitudes of several vectors at once.

    Args:
        kept: for each vector, how many elements to keep, at most its length.
        scan: runs a function over every block of the vectors.
    """
    found = select({i: (k,) for i, k in kept.items()}, scan)
    return {i: selections[0] for i, selections in found.items()}


def select(
    ranks: Mapping[int, Sequence[int]], scan: ScanVectors, key: Key = magnitude_bits
) -> dict[int, list[Selection]]:
    """Find the k largest of several vectors, for several k of each.

    Args:
        ranks: for each vector, the numbers k of elements to keep, at most its length.
        scan: runs a function over every block of the vectors.
        key: what elements are ordered by.
    """
    wanted = {(i, k) for i, ks in ranks.items() for k in ks if k > 0}
    places = _find(wanted, scan, key) if wanted else {}
    found = {which: Selection(place.key, place.rank) for which, place in places.items()}
    split = [which for which, place in places.items() if place.rank < place.equal]
    if split:
        rows = list(scan(lambda v, block: _equal_counts(v, split, found, key)))
        for which, counts in zip(split, zip(*rows)):
            found[which].before = [0, *accumulate(counts)][:-1]
    nothing = Selection(threshold=0, equal=0)
    return {i: [found.get((i, k), nothing) for k in ks] for i, ks in ranks.items()}


def order_statistics(
    ranks: Mapping[int, Sequence[int]], scan: ScanVectors, key: Key = magnitude_bits
) -> dict[int, list[int]]:
    """The keys of the k-th largest elements of several vectors, for several k (from 1) of each."""
    places = _find({(i, k) for i, ks in ranks.items() for k in ks}, scan, key)
    return {i: [places[i, k].key for k in ks] for i, ks in ranks.items()}


@dataclass(frozen=True)
class _Place:
    """Where the k-th largest was found: its key, and its rank among the `equal` ones, from 1."""

    key: int
    rank: int
    equal: int


def _find(
    wanted: set[tuple[int, int]], scan: ScanVectors, key: Key
) -> dict[tuple[int, int], _Place]:
    vectors = sorted({i for i, _ in wanted})
    upper = {i: np.zeros(_BINS, np.int64) for i in vectors}
    for part in scan(lambda v, block: {i: _histogram(key(v[i])) for i in vectors}):
        for i, counts in part.items():
            upper[i] += counts
    coarse = {(i, k): _bin_of(upper[i], k) for i, k in sorted(wanted)}
    bins = {i: sorted({place[0] for (j, _), place in coarse.items() if j == i}) for i in vectors}
    lower = {(i, upper_bin): np.zeros(_BINS, np.int64) for i in vectors for upper_bin in bins[i]}
    for part in scan(lambda v, block: _low_histograms(v, bins, key)):
        for which, counts in part.items():
            lower[which] += counts
    places = {}
    for (i, k), (upper_bin, rest) in coarse.items():
        counts = lower[i, upper_bin]
        low, rank = _bin_of(counts, rest)
        places[i, k] = _Place((upper_bin << _LOW_BITS) | low, rank, int(counts[low]))
    return places


def _histogram(bits: Bits) -> np.ndarray:
    upper = (bits >> _LOW_BITS).view(np.int32)
    return torch.bincount(torch.from_numpy(upper), minlength=_BINS).numpy()


def _low_histograms(
    vectors: Vectors, bins: Mapping[int, Sequence[int]], key: Key
) -> dict[tuple[int, int], np.ndarray]:
    found = {}
    for i, upper_bins in bins.items():
        bits = key(vectors[i])
        for upper_bin in upper_bins:
            low = bits - np.uint32(upper_bin << _LOW_BITS)
            inside = low[low < _BINS].view(np.int32)
            found[i, upper_bin] = torch.bincount(torch.from_numpy(inside), minlength=_BINS).numpy()
    return found


def _bin_of(counts: np.ndarray, k: int) -> tuple[int, int]:
    """The bin that the k-th largest falls into, and its rank within that bin (from 1)."""
    above = np.cumsum(counts[::-1])
    position = int(np.searchsorted(above, k))
    found = len(counts) - 1 - position
    return found, k - int(above[position] - counts[found])


def _equal_counts(
    vectors: Vectors,
    split: Sequence[tuple[int, int]],
    found: Mapping[tuple[int, int], Selection],
    key: Key,
) -> list[int]:
    bits = {i: key(vectors[i]) for i in {i for i, _ in split}}
    return [
        int(np.count_nonzero(bits[which[0]] == np.uint32(found[which].threshold)))
        for which in split
    ]
