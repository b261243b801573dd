"""An array that grows by appending."""

from __future__ import annotations

import numpy as np


class GrowingArray:
    """An array of uint32 that is appended to.

    Its memory is allocated at once, not piece by piece: many small allocations that live long would
    fragment the memory of the large ones between them.

    Args:
        expected: approximate number of elements; more can be appended.
    """

    def __init__(self, expected: int) -> None:
        self._array = np.empty(max(expected, 1), np.uint32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, numbers: np.ndarray) -> None:
        """Add numbers to the end: uint32."""
        end = self._length + len(numbers)
        if end > len(self._array):
            longer = np.empty(max(end, 2 * len(self._array)), np.uint32)
            longer[: self._length] = self.whole
            self._array = longer
        self._array[self._length : end] = numbers
        self._length = end

    @property
    def whole(self) -> np.ndarray:
        """All elements: a view, valid until the next append."""
        return self._array[: self._length]
