"""No more than so many bytes in a second."""

from __future__ import annotations

import time
from collections.abc import Callable


class RateLimit:
    """Says how long to wait after bytes were moved, so that over any time the rate is held.

    Time in which nothing was moved is not made up for.
    """

    def __init__(self, rate: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            rate: bytes in a second; no limit by default.
        """
        self._rate, self._clock = rate, clock
        self._due = float("-inf")

    def seconds(self, nbytes: int) -> float:
        """To wait, now that so many more bytes were moved."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._due = max(self._due, now) + nbytes / self._rate
        return self._due - now
