"""Order statistics of whole vectors, exactly, without sorting them and in little memory.

The bits of a float32, its sign bit put aside or folded in, are ordered as the float is. A sample
says between which two keys the k-th largest is to be expected; counting what is above, and the few
that are between, finds it. If it is not there, two histograms (of the upper 16 bits, then
of the lower 16 in the bin that the k-th falls into) do. Both ways give the k-th largest exactly.
Elements equal to it are kept in the order of their index until k are kept. NaN counts as larger
than any number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from resumerge.methods.kernels.keys import KINDS, Bits, Key, magnitude_bits
from resumerge.methods.kernels.selection_memory import (
    LARGEST_SAMPLE,
    MOST_COLLECTED,
    SAMPLED,
    STANDARD_ERRORS,
    THINNED,
)
from resumerge.methods.method import Block, Scan
from resumerge.native import Vector

_LOW_BITS = 16
_BINS = 1 << _LOW_BITS
_FINE_BITS = 12
_LARGEST = np.uint32(0xFFFFFFFF)

Vectors = dict[int, Any]
ScanVectors = Scan[Any]
Which = tuple[int, int]
"""A vector, and a number k of its largest elements."""


@dataclass
class Selection:
    """Which elements of one vector are the k largest.

    Args:
        threshold: key of the k-th largest; elements above it are kept.
        equal: how many elements equal to it are kept, counted from the first
            index; 0 keeps nothing at all.
        before: for each block, how many elements equal to it stand in the blocks before, and in
            the end how many there are; empty where all of them are kept.
    """

    threshold: int
    equal: int
    before: list[int] = field(default_factory=list)

    def mask(self, values: Any, block: Block, key: Key = magnitude_bits) -> np.ndarray:
        """1 where an element of the block is kept, else 0: uint8."""
        if self.equal == 0:
            return np.zeros(len(values), np.uint8)
        quota = self._quota(len(values), block)
        if isinstance(values, Vector):
            from resumerge.native.calls import mask_above

            return mask_above(values, KINDS[key], self.threshold, quota)
        bits, threshold = key(values), np.uint32(self.threshold)
        if quota >= len(bits):
            return (bits >= threshold).view(np.uint8)
        kept = bits > threshold
        if quota > 0:
            kept[np.flatnonzero(bits == threshold)[:quota]] = True
        return kept.view(np.uint8)

    def rule(self, values: Any, block: Block) -> Any:
        """What `combined` keeps of a block by magnitude: a mask, or a threshold in its place."""
        if self.equal == 0 or not isinstance(values, Vector):
            return self.mask(values, block)
        from resumerge.native.calls import Above

        return Above(self.threshold, self._quota(len(values), block))

    def _quota(self, length: int, block: Block) -> int:
        """How many elements of a block that are equal to the threshold are kept."""
        if not self.before:
            return length
        return max(0, self.equal - self.before[block.index])


@dataclass
class Band:
    """The elements that are among the `outer` largest magnitudes but not among the `inner`."""

    outer: Selection
    inner: Selection

    def mask(self, values: Any, block: Block) -> np.ndarray:
        """1 where an element of the block is in the band, else 0: uint8."""
        return self.outer.mask(values, block) & (self.inner.mask(values, block) ^ 1)


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
    wanted = sorted({(i, k) for i, ks in ranks.items() for k in ks if k > 0})
    found = _guess(wanted, scan, key) if wanted else {}
    missed = {which for which in wanted if which not in found}
    places = _find(missed, scan, key) if missed else {}
    found |= {which: Selection(place.key, place.rank) for which, place in places.items()}
    split = [which for which, place in places.items() if place.rank < place.equal]
    if split:
        rows = list(scan(lambda v, block: _equal_counts(v, split, found, key)))
        for which, counts in zip(split, zip(*rows)):
            found[which].before = [0, *accumulate(counts)]
    nothing = Selection(threshold=0, equal=0)
    return {i: [found.get((i, k), nothing) for k in ks] for i, ks in ranks.items()}


def order_statistics(
    ranks: Mapping[int, Sequence[int]], scan: ScanVectors, key: Key = magnitude_bits
) -> dict[int, list[int]]:
    """The keys of the k-th largest elements of several vectors, for several k (from 1) of each."""
    found = select(ranks, scan, key)
    return {i: [selection.threshold for selection in found[i]] for i in ranks}


def _guess(wanted: Sequence[Which], scan: ScanVectors, key: Key) -> dict[Which, Selection]:
    """The selections whose threshold lies where a sample says.

    One scan over the sample, and one over everything that counts what is above a bracket and
    collects what is inside. Where the k-th largest is not among those, nothing is returned for it:
    what is returned never depends on the sample.
    """
    brackets = _brackets(wanted, scan, key)
    above = dict.fromkeys(brackets, 0)
    inside: dict[Which, list[tuple[Bits, np.ndarray]]] = {which: [] for which in brackets}
    if brackets:
        for part in scan(lambda v, block: _around(v, brackets, key)):
            for which, (count, keys, counts) in part.items():
                above[which] += count
                inside[which].append((keys, counts))
    found = {}
    for which, pieces in inside.items():
        rest = which[1] - above[which]
        if not 1 <= rest <= sum(int(numbers.sum()) for _, numbers in pieces):
            continue
        threshold, equal = _within(pieces, *brackets[which], rest)
        selection = Selection(int(threshold), equal)
        counts = [int(number[piece == threshold].sum()) for piece, number in pieces]
        if selection.equal < sum(counts):
            selection.before = [0, *accumulate(counts)]
        found[which] = selection
    return found


def _within(
    pieces: Sequence[tuple[Bits, np.ndarray]], low: np.uint32, high: np.uint32, rank: int
) -> tuple[np.uint32, int]:
    """The key of a rank (from 1, the largest) among counted keys, and its rank among equal ones.

    By a histogram, and a sort of what is in the one bin: the pieces are many, and stay as they are.
    """
    shift = np.uint32(max(0, int(high - low).bit_length() - _FINE_BITS))
    bins = np.zeros(1 << _FINE_BITS, np.int64)
    for keys, numbers in pieces:
        np.add.at(bins, (keys - low) >> shift, numbers)
    chosen, rank = _bin_of(bins, rank)
    inside = [(keys - low) >> shift == chosen for keys, _ in pieces]
    keys = np.concatenate([keys[mask] for (keys, _), mask in zip(pieces, inside)])
    numbers = np.concatenate([numbers[mask] for (_, numbers), mask in zip(pieces, inside)])
    order = np.argsort(keys)[::-1]
    threshold = keys[order[np.searchsorted(np.cumsum(numbers[order]), rank)]]
    return threshold, rank - int(numbers[keys > threshold].sum())


def _brackets(
    wanted: Sequence[Which], scan: ScanVectors, key: Key
) -> dict[Which, tuple[np.uint32, np.uint32]]:
    """The least and the greatest key that each k-th largest is expected between."""
    vectors = sorted({i for i, _ in wanted})
    numel, thinned = 0, 1
    samples: dict[int, list[Bits]] = {i: [] for i in vectors}
    for numel, keys in scan(
        lambda v, block: (
            block.start + SAMPLED * (block.stop - block.start),
            {i: key(_every(v[i], THINNED)) for i in vectors},
        ),
        True,
    ):
        for i, pieces in samples.items():
            pieces.append(np.ascontiguousarray(keys[i][::thinned]))
        if numel > LARGEST_SAMPLE * SAMPLED * THINNED * thinned:
            thinned *= 2
            samples = {i: [piece[::2].copy() for piece in p] for i, p in samples.items()}
    sorted_samples = {i: np.sort(np.concatenate(pieces)) for i, pieces in samples.items()}
    found = {}
    for i, k in wanted:
        sample = sorted_samples[i]
        size, share = len(sample), min(k / max(numel, 1), 1.0)
        if size == 0:
            continue
        middle = sample[max(0, size - 1 - int(share * size))]
        shares = [float(np.mean(piece > middle)) for piece in samples[i] if len(piece)]
        # Standard errors, of the elements as if independent and of the blocks.
        reach = STANDARD_ERRORS * (0.5 / size**0.5 + float(np.std(shares)) / len(shares) ** 0.5)
        reach = max(reach, 0.03) if len(shares) < 8 else reach
        if 2.0 * reach * numel > MOST_COLLECTED:
            continue
        low = size - 1 - int((share + reach) * size)
        high = size - 1 - int((share - reach) * size)
        found[i, k] = (
            sample[low] if low >= 0 else np.uint32(0),
            sample[high] if high < size else _LARGEST,
        )
    return found


def _every(vector: Any, step: int) -> Any:
    return vector.every(step) if isinstance(vector, Vector) else vector[::step]


def _around(
    vectors: Vectors, brackets: Mapping[Which, tuple[np.uint32, np.uint32]], key: Key
) -> dict[Which, tuple[int, Bits, np.ndarray]]:
    """How many elements are above each bracket, and the keys inside with how many have them.

    Counted here, not collected as they are: differences of 16-bit numbers are few different ones,
    and a bracket may hold a large share of the tensor.
    """
    found = {}
    keys: dict[int, Bits] = {}
    for (i, k), (low, high) in brackets.items():
        if isinstance(vectors[i], Vector):
            from resumerge.native.calls import around

            found[i, k] = around(vectors[i], KINDS[key], int(low), int(high))
            continue
        bits = keys[i] if i in keys else keys.setdefault(i, key(vectors[i]))
        inside = np.flatnonzero(bits - low <= high - low)
        different, counts = np.unique(bits[inside], return_counts=True)
        found[i, k] = (int(np.count_nonzero(bits > high)), different, counts.astype(np.int32))
    return found


@dataclass(frozen=True)
class _Place:
    """Where the k-th largest was found: its key, and its rank among the `equal` ones, from 1."""

    key: int
    rank: int
    equal: int


def _find(wanted: set[Which], scan: ScanVectors, key: Key) -> dict[Which, _Place]:
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
    return np.bincount(bits >> _LOW_BITS, minlength=_BINS)


def _low_histograms(
    vectors: Vectors, bins: Mapping[int, Sequence[int]], key: Key
) -> dict[Which, np.ndarray]:
    found = {}
    for i, upper_bins in bins.items():
        bits = key(vectors[i])
        for upper_bin in upper_bins:
            low = bits - np.uint32(upper_bin << _LOW_BITS)
            found[i, upper_bin] = np.bincount(low[low < _BINS], minlength=_BINS)
    return found


def _bin_of(counts: np.ndarray, k: int) -> tuple[int, int]:
    """The bin that the k-th largest falls into, and its rank within that bin (from 1)."""
    above = np.cumsum(counts[::-1])
    position = int(np.searchsorted(above, k))
    found = len(counts) - 1 - position
    return found, k - int(above[position] - counts[found])


def _equal_counts(
    vectors: Vectors,
    split: Sequence[Which],
    found: Mapping[Which, Selection],
    key: Key,
) -> list[int]:
    return [_equal_count(vectors[i], found[i, k].threshold, key) for i, k in split]


def _equal_count(vector: Any, threshold: int, key: Key) -> int:
    if isinstance(vector, Vector):
        from resumerge.native.calls import equal_count

        return equal_count(vector, KINDS[key], threshold)
    return int(np.count_nonzero(key(vector) == np.uint32(threshold)))
