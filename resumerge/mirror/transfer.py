"""The rate limit of transfers to and from a mirror, and the time without progress.

A task of a cluster runs in a process of its own, and limits its own transfers
(`engine/cluster/exchange/bucket_task.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LARGEST_FACTOR = 4
"""The limit of moved bytes that count as progress, both ways, as a multiple of the file's size."""


class RateLimit:
    """A limit of the bytes per second. Idle time does not allow faster transfers afterwards.

    Args:
        rate: the bytes per second; None for no limit.
        clock: returns seconds, monotonic.
    """

    def __init__(self, rate: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._due = float("-inf")

    def seconds(self, nbytes: int) -> float:
        """Return the seconds to wait after a transfer of `nbytes` bytes."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._due = max(self._due, now) + nbytes / self._rate
        return self._due - now


class TransferProgress:
    """The rate limit of a mirror's transfers, and the time of their last progress.

    Bytes of a file that is sent again and again do not count as progress (`LARGEST_FACTOR`).

    Args:
        rate: the bytes per second; None for no limit.
    """

    def __init__(self, rate: int | None) -> None:
        self._limit = RateLimit(rate)
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._moved = self._nbytes = 0

    def begin(self) -> None:
        """Record that a new operation begins."""
        with self._lock:
            self._moved = self._nbytes = 0

    def expect(self, nbytes: int) -> None:
        """Record that the operation transfers a file of `nbytes` bytes."""
        with self._lock:
            self._nbytes = nbytes

    def moved(self, nbytes: int) -> float:
        """Record moved bytes, and return the seconds to wait for the rate limit."""
        with self._lock:
            pause = self._limit.seconds(nbytes)
            self._moved += nbytes
            if nbytes and self._moved <= LARGEST_FACTOR * self._nbytes:
                self._last = time.monotonic() + pause
            return pause

    def succeeded(self) -> None:
        """Record that an operation succeeded, which counts as progress."""
        self._last = time.monotonic()

    def stalled_seconds(self) -> float:
        """Return the seconds since the last progress."""
        return time.monotonic() - self._last
