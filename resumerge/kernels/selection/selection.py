"""The result of a selection: the elements of a vector that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from resumerge.kernels.blocks import BlockRun
from resumerge.kernels.selection.keys import Key
from resumerge.native import MaskOrThreshold, Vector, _kernels


@dataclass(frozen=True)
class Selection:
    """The k largest elements of one vector.

    Args:
        threshold: the key of the k-th largest; all elements with larger keys are kept.
        equal: the number of elements equal to the threshold that are kept: those with the lowest
            indices. 0 means that k is 0, and no element is kept.
        before: for each block, the number of elements equal to the threshold in all earlier blocks,
            followed by their total; empty if all elements equal to the threshold are kept.
    """

    threshold: int
    equal: int
    before: Sequence[int] = ()

    @classmethod
    def of(cls, threshold: int, equal: int, counts: Sequence[int]) -> Selection:
        """Return a selection that keeps some of the elements equal to the threshold.

        Args:
            threshold: the key of the k-th largest.
            equal: the number of elements equal to the threshold that are kept.
            counts: for each block, the number of elements equal to the threshold.
        """
        return cls(threshold, equal, [0, *accumulate(counts)])

    def mask(self, values: Vector, run: BlockRun, key: Key = Key.MAGNITUDE) -> np.ndarray:
        """Return the mask of a run: uint8, 1 where an element is kept, else 0."""
        if self.equal == 0:
            return np.zeros(len(values), np.uint8)
        mask = np.empty(len(values), np.uint8)
        _kernels.mask_above(values, key.value, self.threshold, self._quota(run), mask)
        return mask

    def mask_or_threshold(self, values: Vector, run: BlockRun) -> MaskOrThreshold:
        """Return the threshold that `add_task_vectors` accepts in place of a mask by magnitude.

        If no element is kept, the result is a mask.
        """
        return (self.threshold, self._quota(run)) if self.equal else self.mask(values, run)

    def _quota(self, run: BlockRun) -> int:
        """Return the number of elements equal to the threshold that a run keeps: the first ones.

        The number may be larger than the number of such elements in the run.
        """
        if not self.before:
            return run.length
        return max(0, self.equal - self.before[run.first])


@dataclass
class Band:
    """The elements that the selection `outer` keeps and the selection `inner` does not keep."""

    outer: Selection
    inner: Selection

    def mask(self, values: Vector, run: BlockRun) -> np.ndarray:
        """Return the mask of a run: uint8, 1 where an element is in the band, else 0."""
        band: np.ndarray = self.outer.mask(values, run) & (self.inner.mask(values, run) ^ 1)
        return band
