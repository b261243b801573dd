"""Numbers that come piece by piece and are wanted as one array."""

from __future__ import annotations

import numpy as np


class Growing:
    """An array of uint32 that is appended to.

    Its memory is asked for at once, not piece by piece: small pieces that stay, between large ones
    that come and go, keep the allocator from using the memory of these again.

    Args:
        expected: how many there will be, about; more are as welcome.
    """

    def __init__(self, expected: int) -> None:
        self._room = np.empty(max(expected, 1), np.uint32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, numbers: np.ndarray) -> None:
        """Add numbers to the end: uint32."""
        end = self._length + len(numbers)
        if end > len(self._room):
            longer = np.empty(max(end, 2 * len(self._room)), np.uint32)
            longer[: self._length] = self.whole
            self._room = longer
        self._room[self._length : end] = numbers
        self._length = end

    @property
    def whole(self) -> np.ndarray:
        """All of them: a view, until the next one is appended."""
        return self._room[: self._length]
