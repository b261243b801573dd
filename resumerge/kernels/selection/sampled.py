"""Between which keys the k-th largest is to be expected, from a sample of a vector's keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from resumerge.kernels.selection.growing import Growing
from resumerge.kernels.selection.keys import Bits
from resumerge.kernels.selection.memory import (
    MOST_COLLECTED,
    SAMPLED,
    STANDARD_ERRORS,
    sample_step,
)

Bracket = tuple[np.uint32, np.uint32]

_LARGEST = np.uint32(0xFFFFFFFF)
_FEW_BLOCKS = 8
_LEAST_REACH = 0.03
"""Of the elements, to both sides, where there are too few blocks to say how much they differ."""


class Sampled:
    """A sample of the keys of each block of a vector.

    Args:
        numel: elements of the vector.
    """

    def __init__(self, numel: int) -> None:
        self._numel = numel
        self._keys = Growing(int(1.02 * numel) // (SAMPLED * sample_step(numel)))
        self._starts: list[int] = []

    def add(self, keys: Bits) -> None:
        """Take in a sample of the next block: uint32, at least one."""
        self._starts.append(len(self._keys))
        self._keys.append(keys)

    def brackets(self, ranks: Sequence[int]) -> dict[int, Bracket]:
        """The least and the greatest key that each k-th largest is expected between.

        Args:
            ranks: numbers k. Those whose bracket would hold too much are left out.
        """
        keys, numel = self._keys.whole, self._numel
        ordered = keys.copy()  # as far as is asked for: a sort takes several times as long
        found = {}
        for k in ranks:
            middle = max(0, self._place(k / numel))
            ordered.partition(middle)
            reach = self._reach(keys, ordered[middle])
            if 2.0 * reach * numel > MOST_COLLECTED:
                continue
            low, high = self._place(k / numel + reach), self._place(k / numel - reach)
            ordered.partition([max(0, low), min(high, len(keys) - 1)])
            found[k] = (
                ordered[low] if low >= 0 else np.uint32(0),
                ordered[high] if high < len(keys) else _LARGEST,
            )
        return found

    def _place(self, share: float) -> int:
        """Where, among all in ascending order, the last of the largest is; below 0 for none."""
        return len(self._keys) - 1 - int(share * len(self._keys))

    def _reach(self, keys: Bits, middle: np.uint32) -> float:
        """How far a bracket reaches to both sides, as a share of the elements.

        In standard errors, of the elements as if independent and of the blocks.
        """
        pieces = [keys[a:b] for a, b in pairwise([*self._starts, len(keys)])]
        shares = [np.count_nonzero(piece > middle) / len(piece) for piece in pieces]
        errors = 0.5 / len(keys) ** 0.5 + float(np.std(shares)) / len(shares) ** 0.5
        reach = STANDARD_ERRORS * errors
        return max(reach, _LEAST_REACH) if len(shares) < _FEW_BLOCKS else reach
