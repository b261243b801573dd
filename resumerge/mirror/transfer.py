"""The rate limit of transfers to and from a mirror, and the time without progress.

A task of a cluster, in a process of its own, limits what it transfers by itself
(`engine/cluster/exchange/bucket_task.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LARGEST_FACTOR = 4
"""The multiple of a file's size up to which its moved bytes, there and back, count as progress."""


class RateLimit:
    """A limit of the bytes per second. Time without transfers is not made up for by faster ones.

    Args:
        rate: the bytes per second; None for no limit.
        clock: returns seconds, monotonic.
    """

    def __init__(self, rate: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._due = float("-inf")

    def seconds(self, nbytes: int) -> float:
        """Return the seconds to wait after so many more bytes."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._due = max(self._due, now) + nbytes / self._rate
        return self._due - now


class TransferProgress:
    """The rate limit of a mirror's transfers, and the time of their last progress.

    Bytes of one file that are sent too often do not count as progress (`LARGEST_FACTOR`).

    Args:
        rate: the bytes per second; None for no limit.
    """

    def __init__(self, rate: int | None) -> None:
        self._limit = RateLimit(rate)
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._moved = self._nbytes = 0

    def begin(self) -> None:
        """Note that a new operation begins."""
        with self._lock:
            self._moved = self._nbytes = 0

    def expect(self, nbytes: int) -> None:
        """Note that the operation moves a file of so many bytes."""
        with self._lock:
            self._nbytes = nbytes

    def moved(self, nbytes: int) -> float:
        """Note bytes that were moved, and return the seconds to wait for the rate limit."""
        with self._lock:
            pause = self._limit.seconds(nbytes)
            self._moved += nbytes
            if nbytes and self._moved <= LARGEST_FACTOR * self._nbytes:
                self._last = time.monotonic() + pause
            return pause

    def succeeded(self) -> None:
        """Note that an operation succeeded."""
        self._last = time.monotonic()

    def stalled_seconds(self) -> float:
        """Return the seconds since the last progress."""
        return time.monotonic() - self._last
