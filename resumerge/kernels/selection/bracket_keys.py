"""Keys inside a bracket, collected block by block, and the selection at a rank among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.selection.growing_array import GrowingArray
from resumerge.kernels.selection.limits import MOST_COLLECTED
from resumerge.kernels.selection.selection import Selection
from resumerge.native import _kernels

_EXPECTED = 64
"""A number n: a bracket usually contains at most one in n elements."""


class BracketKeys:
    """The distinct keys of each block that are inside a bracket, with the counts of their elements.

    Args:
        rank: the rank of the threshold in the vector; 1 is the largest key.
        numel: the number of elements of the vector.
    """

    def __init__(self, rank: int, numel: int) -> None:
        self._rank = rank
        expected_keys = min(numel // _EXPECTED, MOST_COLLECTED)
        self._keys, self._counts = (GrowingArray(expected_keys, most=True) for _ in range(2))
        self._ends: list[int] = []
        self._too_many = False

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, above: int, key_bytes: bytes, count_bytes: bytes, ends: Sequence[int]) -> None:
        """Add the next blocks.

        Args:
            above: the number of elements of the blocks with keys above the bracket.
            key_bytes: the distinct keys inside the bracket of each block, one block after the
                other: uint32.
            count_bytes: for each key of `key_bytes`, the number of the block's elements that have
                it: uint32.
            ends: for each block, the number of keys in `key_bytes` up to the block's end.
        """
        keys, counts = np.frombuffer(key_bytes, np.uint32), np.frombuffer(count_bytes, np.uint32)
        self._rank -= above
        if self._too_many or len(self) + len(keys) > MOST_COLLECTED:
            self._too_many = True
            self._keys, self._counts = GrowingArray(0), GrowingArray(0)
            return
        keys_before = len(self)
        self._keys.append(keys)
        self._counts.append(counts)
        self._ends += [keys_before + end for end in ends]

    def selection(self) -> Selection | None:
        """Return the selection; None for a rank outside the bracket, or too many keys inside it."""
        keys, counts = self._keys.whole, self._counts.whole
        key_and_rank = None if self._too_many else _kernels.key_of_rank(keys, counts, self._rank)
        if key_and_rank is None:
            return None
        threshold, rank = key_and_rank
        places = np.flatnonzero(keys == threshold)
        equal_counts = np.zeros(len(self._ends), np.int64)
        equal_counts[np.searchsorted(self._ends, places, side="right")] = counts[places]
        if rank < equal_counts.sum():
            return Selection.of(threshold, rank, equal_counts.tolist())
        return Selection(threshold, rank)
