"""An array that grows by appending."""

from __future__ import annotations

import numpy as np

from resumerge.kernels.huge_pages import mapped


class GrowingArray:
    """An array of uint32 that grows by appending.

    Its memory is allocated at once: many small, long-lived allocations would fragment the memory of
    the large allocations between them.

    Args:
        expected: the approximate number of elements; more can be appended.
        most: whether `expected` is an upper bound that is usually not reached.
    """

    def __init__(self, expected: int, *, most: bool = False) -> None:
        self._array = _empty(expected, whole=not most)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, numbers: np.ndarray) -> None:
        """Append numbers, uint32."""
        end = self._length + len(numbers)
        if end > len(self._array):
            longer_array = _empty(max(end, 2 * len(self._array)), whole=False)
            longer_array[: self._length] = self.whole
            self._array = longer_array
        self._array[self._length : end] = numbers
        self._length = end

    @property
    def whole(self) -> np.ndarray:
        """All elements, as a view that is valid until the next append."""
        return self._array[: self._length]


def _empty(length: int, *, whole: bool) -> np.ndarray:
    return mapped(4 * max(length, 1), whole=whole).view(np.uint32)
