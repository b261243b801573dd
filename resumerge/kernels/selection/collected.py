"""Keys inside a bracket, collected block by block, and the rank that is looked for among them."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from resumerge.kernels.selection.growing import Growing
from resumerge.kernels.selection.histograms import bin_of
from resumerge.kernels.selection.keys import Bits
from resumerge.kernels.selection.memory import MOST_COLLECTED
from resumerge.kernels.selection.selected import Selection

_FINE_BITS = 12
_EXPECTED = 64
"""Of the elements, at most one in so many is inside, as a rule."""
_AT_ONCE = 1 << 16
"""Keys that are counted at a time: NumPy weighs them with numbers of 8 bytes."""


class Collected:
    """The different keys inside a bracket of each block, with how many elements have each.

    Args:
        rank: of the key that is looked for (from 1, the largest).
        numel: elements of the vector.
        low: the least key of the bracket.
    """

    def __init__(self, rank: int, numel: int, low: np.uint32) -> None:
        self._rank, self._low = rank, low
        expected = min(numel // _EXPECTED, MOST_COLLECTED)
        self._keys, self._counts = Growing(expected), Growing(expected)
        self._ends: list[int] = []
        self._too_many = False

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, above: int, keys: Bits, counts: np.ndarray) -> None:
        """Take in the next block.

        Args:
            above: how many of its elements have keys above the bracket.
            keys: the different ones inside, ascending: uint32.
            counts: how many elements have each: uint32.
        """
        self._rank -= above
        if self._too_many or len(self) + len(keys) > MOST_COLLECTED:
            self._too_many = True
            self._keys, self._counts = Growing(0), Growing(0)
            return
        self._keys.append(keys)
        self._counts.append(counts)
        self._ends.append(len(self))

    def selection(self) -> Selection | None:
        """What is kept; None where the rank is not inside, or too many keys were."""
        keys, counts = self._keys.whole, self._counts.whole
        if self._too_many or not 1 <= self._rank <= counts.sum(dtype=np.int64):
            return None
        threshold, rank = self._within(keys, counts)
        selection = Selection(int(threshold), rank)
        places = np.flatnonzero(keys == threshold)
        equal = np.zeros(len(self._ends), np.int64)
        equal[np.searchsorted(self._ends, places, side="right")] = counts[places]
        if rank < equal.sum():
            selection.before = [0, *accumulate(equal.tolist())]
        return selection

    def _within(self, keys: Bits, counts: np.ndarray) -> tuple[np.uint32, int]:
        """The key of the rank, and its rank among equal ones.

        By a histogram, and a sort of what is in the one bin.
        """
        shift = np.uint32(max(0, int(keys.max() - self._low).bit_length() - _FINE_BITS))
        bins = (keys - self._low) >> shift
        numbers = np.zeros(1 << _FINE_BITS, np.int64)
        for start in range(0, len(bins), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            numbers += np.bincount(bins[part], counts[part], len(numbers)).astype(np.int64)
        chosen, rank = bin_of(numbers, self._rank)
        keys, counts = keys[bins == chosen], counts[bins == chosen]
        order = np.argsort(keys)[::-1]
        threshold = keys[order[np.searchsorted(np.cumsum(counts[order]), rank)]]
        return threshold, rank - int(counts[keys > threshold].sum())
