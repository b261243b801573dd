"""A timer that can be paused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timer:
    """A timer that starts when it is created, and can be paused."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._paused = 0.0

    @property
    def seconds(self) -> float:
        """The seconds since the timer was created, without pauses."""
        return time.monotonic() - self._started - self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the timer for the block of a ``with`` statement; pauses must not overlap."""
        pause_started = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - pause_started
