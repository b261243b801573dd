"""Bars: how much is done, how fast, and how long the rest takes."""

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
"""The columns of a terminal from which bars, sizes and names are shown."""

RECENT_SECONDS = 15.0
"""The time over which the recent speed is measured."""

SWING = 1.5
"""The ratio of the times left at the recent and at the mean speed above which both are shown."""

KNOWN_SECONDS = 3.0
"""The time of progress before a speed is shown."""


_ECHO = 3
"""The columns left free for the ``^C`` that a terminal echoes, or it would go to the next line."""


class Pace:
    """The speed at which bytes come: since the first figures, and recently."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []
        """(time, bytes): the first figures, and those of late."""

    def add(self, done: int) -> None:
        """Note that so many bytes are done now, in total."""
        now = time.monotonic()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > RECENT_SECONDS:
            del self._seen[1]

    @property
    def rate(self) -> float | None:
        """The bytes a second since the first figures; None until it is known."""
        return self._rate_since(0)

    def left(self, nbytes: int) -> str:
        """Return the time for so many more bytes, ``2 to 5 min``; empty until it is known."""
        if not self.rate or not nbytes:
            return ""
        mean, late = nbytes / self.rate, nbytes / (self._rate_since(1) or self.rate)
        swings = max(mean, late) > SWING * min(mean, late)
        return show_range(min(mean, late), max(mean, late)) if swings else show_range(mean, mean)

    def _rate_since(self, number: int) -> float | None:
        if number >= len(self._seen):
            return None
        (began, before), (now, done) = self._seen[number], self._seen[-1]
        known = now - began >= KNOWN_SECONDS and done > before
        return (done - before) / (now - began) if known else None


@dataclass(frozen=True)
class Bar:
    """The content of a bar.

    Args:
        what: the verb for the bytes that are done: ``merged``.
        now: what is worked on.
        idle: a text in place of speed and time left, if there is no progress.
    """

    what: str
    pace: Pace
    done: int
    total: int
    now: str
    idle: str = ""


def show_bars(bars: Iterable[Bar], width: int) -> RenderableType:
    """Return bars below each other, one line each, of so many columns."""
    grid = Table.grid(padding=(0, 1))
    grid.width = width - _ECHO
    for _ in range(3 + (width >= LEAST_FOR_BAR)):
        grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
    for bar in bars:
        speed = f"{show_size(bar.pace.rate)}/s" if bar.pace.rate else ""
        left = bar.pace.left(bar.total - bar.done)
        facts = [
            f"{show_size(bar.done)} of {show_size(bar.total)}" if width >= LEAST_FOR_SIZES else "",
            *([bar.idle] if bar.idle else [speed, f"{left} left" if left else ""]),
        ]
        grid.add_row(
            bar.what,
            *([ProgressBar(bar.total, bar.done, width // 6)] if width >= LEAST_FOR_BAR else []),
            f"{bar.done / max(1, bar.total):4.0%}",
            ", ".join(filter(None, facts)),
            Text(bar.now if width >= LEAST_FOR_NAMES else ""),
        )
    return grid
