"""Brackets that probably contain the k-th largest key, from a sample of a vector's keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resumerge.kernels.huge_pages import mapped
from resumerge.kernels.selection.growing_array import GrowingArray
from resumerge.kernels.selection.keys import Bits
from resumerge.kernels.selection.limits import (
    MOST_COLLECTED,
    SAMPLED,
    STANDARD_ERRORS,
    sample_step,
)

Bracket = tuple[np.uint32, np.uint32]

_MAX_KEY = np.uint32(0xFFFFFFFF)
_FEW_BLOCKS = 8
_LEAST_REACH = 0.03
"""The smallest reach, as a share of the elements, if blocks are too few to estimate a variance."""


class KeySample:
    """A sample of the keys of each block of a vector.

    Args:
        numel: the number of elements of the vector.
    """

    def __init__(self, numel: int) -> None:
        self._numel = numel
        self._keys = GrowingArray(int(1.02 * numel) // (SAMPLED * sample_step(numel)))
        self._starts: list[int] = []

    def add(self, keys: Bits, blocks: int) -> None:
        """Add the sample of the next blocks.

        Args:
            keys: uint32, at least one key; about the same number from each block.
            blocks: the number of blocks that the keys are from.
        """
        begin, blocks = len(self._keys), min(blocks, len(keys))
        self._starts += [begin + len(keys) * block // blocks for block in range(blocks)]
        self._keys.append(keys)

    def brackets(self, ranks: Sequence[int]) -> dict[int, Bracket]:
        """Return the bracket, (smallest key, largest key), in which each k-th largest is expected.

        Args:
            ranks: the numbers k. The result has no entry for a k whose bracket would contain too
                many keys.
        """
        keys, numel = self._keys.whole, self._numel
        partitioned_keys = mapped(keys.nbytes).view(np.uint32)
        partitioned_keys[:] = (
            keys  # partitioned as needed: a full sort would take several times as long
        )
        found_brackets = {}
        for k in ranks:
            middle_index = max(0, self._place(k / numel))
            partitioned_keys.partition(middle_index)
            reach = self._reach(keys, partitioned_keys[middle_index])
            if 2.0 * reach * numel > MOST_COLLECTED:
                continue
            low_index, high_index = self._place(k / numel + reach), self._place(k / numel - reach)
            partitioned_keys.partition([max(0, low_index), min(high_index, len(keys) - 1)])
            found_brackets[k] = (
                partitioned_keys[low_index] if low_index >= 0 else np.uint32(0),
                partitioned_keys[high_index] if high_index < len(keys) else _MAX_KEY,
            )
        return found_brackets

    def _place(self, share: float) -> int:
        """Return the ascending index of the smallest key among the largest `share` of the sample.

        The index is negative if the share is 1 or more.
        """
        return len(self._keys) - 1 - int(share * len(self._keys))

    def _reach(self, keys: Bits, middle: np.uint32) -> float:
        """Return half the width of a bracket, as a share of the elements.

        The reach is `STANDARD_ERRORS` times the sum of two standard errors. One is the standard
        error of the elements, as if they were independent; the other is that of the blocks.
        """
        lengths = np.diff(self._starts, append=len(keys))
        shares = np.add.reduceat(keys > middle, self._starts, dtype=np.int64) / lengths
        error_sum = 0.5 / len(keys) ** 0.5 + float(np.std(shares)) / len(shares) ** 0.5
        reach: float = STANDARD_ERRORS * error_sum
        return max(reach, _LEAST_REACH) if len(shares) < _FEW_BLOCKS else reach
