"""The result of a selection: which elements of a vector it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resumerge.kernels.blocks import Block
from resumerge.kernels.selection.keys import KEY_CODES, Key, magnitude_bits
from resumerge.native import Vector, calls


@dataclass
class Selection:
    """The k largest elements of one vector.

    Args:
        threshold: key of the k-th largest; elements above it are kept.
        equal: number of elements equal to it that are kept, those with the lowest indices; 0 keeps
            no element at all.
        before: for each block, the number of elements equal to it in the blocks before, and at the
            end their total; empty where all of them are kept.
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
            return calls.mask_above(values, KEY_CODES[key], self.threshold, quota)
        bits, threshold = key(values), np.uint32(self.threshold)
        if quota >= len(bits):
            return (bits >= threshold).view(np.uint8)
        kept = bits > threshold
        if quota > 0:
            kept[np.flatnonzero(bits == threshold)[:quota]] = True
        return kept.view(np.uint8)

    def mask_or_threshold(self, values: Any, block: Block) -> Any:
        """The mask by magnitude for `add_task_vectors`, or a threshold for the compiled kernel."""
        if self.equal == 0 or not isinstance(values, Vector):
            return self.mask(values, block)
        return calls.Threshold(self.threshold, self._quota(len(values), block))

    def _quota(self, length: int, block: Block) -> int:
        """Number of a block's elements equal to the threshold that are kept."""
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
        band: np.ndarray = self.outer.mask(values, block) & (self.inner.mask(values, block) ^ 1)
        return band
