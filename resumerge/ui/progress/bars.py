"""Progress bars with bytes, speed, and time left."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from resumerge.sizes import show_range, show_size

LEAST_FOR_BAR, LEAST_FOR_SIZES, LEAST_FOR_NAMES = 80, 60, 100
"""The least columns of a terminal for bars, for sizes, and for names."""

RECENT_SECONDS = 15.0
"""The seconds over which the recent speed is measured."""

SWING = 1.5
"""The times left at the mean and at the recent speed are both shown if their ratio is larger."""

KNOWN_SECONDS = 3.0
"""The least seconds of progress for a speed to be shown."""


_ECHO = 3
"""The free columns at the end of a line for the ``^C`` that a terminal echoes."""


class Pace:
    """The speed of bytes: the mean since the first figures, and the recent speed."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []
        """(time, bytes) of the first figures, then of the figures of the last `RECENT_SECONDS`."""

    def add(self, done: int) -> None:
        """Record the total of finished bytes at this moment."""
        now = time.monotonic()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > RECENT_SECONDS:
            del self._seen[1]

    @property
    def rate(self) -> float | None:
        """The mean bytes per second since the first figures; None until it can be measured."""
        return self._rate_since(0)

    def left(self, nbytes: int) -> str:
        """Return the time for `nbytes` more bytes, like ``2 to 5 min``; empty without a speed."""
        if not self.rate or not nbytes:
            return ""
        mean_seconds = nbytes / self.rate
        recent_seconds = nbytes / (self._rate_since(1) or self.rate)
        is_unsteady = max(mean_seconds, recent_seconds) > SWING * min(mean_seconds, recent_seconds)
        return (
            show_range(min(mean_seconds, recent_seconds), max(mean_seconds, recent_seconds))
            if is_unsteady
            else show_range(mean_seconds, mean_seconds)
        )

    def _rate_since(self, number: int) -> float | None:
        if number >= len(self._seen):
            return None
        (start_time, start_bytes), (end_time, end_bytes) = self._seen[number], self._seen[-1]
        is_measurable = end_time - start_time >= KNOWN_SECONDS and end_bytes > start_bytes
        return (end_bytes - start_bytes) / (end_time - start_time) if is_measurable else None


@dataclass(frozen=True)
class Bar:
    """The content of a bar.

    Args:
        what: the verb for the finished bytes, like ``merged``.
        done: the finished bytes.
        total: the bytes at the end.
        now: the name of the tensor or file that is being processed.
        idle: a text in place of speed and time left, if there is no progress; else empty.
    """

    what: str
    pace: Pace
    done: int
    total: int
    now: str
    idle: str = ""


def show_bars(bars: Iterable[Bar], width: int) -> RenderableType:
    """Return bars below each other, with one line of `width` columns for each."""
    grid = Table.grid(padding=(0, 1))
    grid.width = width - _ECHO
    for _ in range(3 + (width >= LEAST_FOR_BAR)):
        grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
    for bar in bars:
        speed = f"{show_size(bar.pace.rate)}/s" if bar.pace.rate else ""
        time_left = bar.pace.left(bar.total - bar.done)
        texts = [
            f"{show_size(bar.done)} of {show_size(bar.total)}" if width >= LEAST_FOR_SIZES else "",
            *([bar.idle] if bar.idle else [speed, f"{time_left} left" if time_left else ""]),
        ]
        grid.add_row(
            bar.what,
            *([ProgressBar(bar.total, bar.done, width // 6)] if width >= LEAST_FOR_BAR else []),
            f"{bar.done / max(1, bar.total):4.0%}",
            ", ".join(filter(None, texts)),
            Text(bar.now if width >= LEAST_FOR_NAMES else ""),
        )
    return grid
