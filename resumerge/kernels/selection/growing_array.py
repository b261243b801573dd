"""An array that grows by appending."""

from __future__ import annotations

import numpy as np

from resumerge.kernels.huge_pages import mapped


class GrowingArray:
    """An array of uint32 that is appended to.

    Its memory is allocated at once, not piece by piece: many small allocations that live long would
    fragment the memory of the large ones between them.

    Args:
        expected: the approximate number of elements; more can be appended.
        most: whether `expected` is an upper bound, which is usually not reached.
    """

    def __init__(self, expected: int, *, most: bool = False) -> None:
        self._array = _empty(expected, whole=not most)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, numbers: np.ndarray) -> None:
        """Add numbers to the end: uint32."""
        end = self._length + len(numbers)
        if end > len(self._array):
            longer = _empty(max(end, 2 * len(self._array)), whole=False)
            longer[: self._length] = self.whole
            self._array = longer
        self._array[self._length : end] = numbers
        self._length = end

    @property
    def whole(self) -> np.ndarray:
        """All elements: a view, valid until the next append."""
        return self._array[: self._length]


def _empty(length: int, *, whole: bool) -> np.ndarray:
    return mapped(4 * max(length, 1), whole=whole).view(np.uint32)
