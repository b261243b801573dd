"""How far a run is: what a progress line, or a picture, says at any moment."""

from __future__ import annotations

import time

from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.sizes import counted, show_seconds, show_size
from resumerge.sources.hub.prefetch import DownloadProgress

STALL_SECONDS = 8.0
"""After so long without progress, the line says for how long there was none."""


class ProgressState(Reporter):
    """A reporter that remembers what it hears; the reporters that show it inherit from it.

    The thread that merges writes it, and the thread of a `Ticker` reads it.

    Attributes:
        phase: what is being done, like ``opening the models``.
        phase_started, moved: on the monotonic clock; `moved` is when bytes were last read,
            computed or written.
        update, fetched: the last figures of merging and of downloading; None before the first.
    """

    def __init__(self) -> None:
        self.phase = "starting"
        self.phase_started = self.moved = time.monotonic()
        self.update: ProgressUpdate | None = None
        self.fetched: DownloadProgress | None = None
        self._first: tuple[float, int] | None = None
        self._has_figures = False  # of this phase
        self._read: tuple[int, int] | None = None

    def doing(self, what: str) -> None:
        self.phase, self.phase_started = what, time.monotonic()
        self.moved = self.phase_started
        self._has_figures = False
        self._read = None

    def heartbeat(self) -> None:
        self.moved = time.monotonic()

    def reading(self, done: int, total: int) -> None:
        self.heartbeat()
        self._read = done, total

    def progressed(self, progressed: ProgressUpdate) -> None:
        self.heartbeat()
        if self._first is None:
            self._first = (self.moved, progressed.bytes_done)
        self.update, self._has_figures = progressed, True

    def fetching(self, fetched: DownloadProgress) -> None:
        if self.fetched is None or fetched.bytes_done != self.fetched.bytes_done:
            self.heartbeat()
        self.fetched, self._has_figures = fetched, True

    @property
    def share(self) -> float:
        """Of the output that is computed, from 0 to 1."""
        return self.update.bytes_done / max(1, self.update.bytes_total) if self.update else 0.0

    @property
    def rate(self) -> float | None:
        """Bytes of output per second since the first batch."""
        if self.update is None or self._first is None:
            return None
        seconds, done = self.moved - self._first[0], self.update.bytes_done - self._first[1]
        return done / seconds if seconds > 0 and done > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds until everything is computed, at that rate."""
        if self.update is None or not self.rate:
            return None
        return (self.update.bytes_total - self.update.bytes_done) / self.rate

    def line(self) -> str:
        """The state as a line of text; control characters in names are not spelled out."""
        now = time.monotonic()
        parts = [self._merging(), self._downloading()] if self._has_figures else []
        text = "; ".join(part for part in parts if part)
        if not text:
            read = (
                f"{show_size(self._read[0])} of {show_size(self._read[1])}, " if self._read else ""
            )
            return f"{self.phase}: {read}{show_seconds(now - self.phase_started)} so far"
        if now - self.moved > STALL_SECONDS:
            text += f"; no progress for {show_seconds(now - self.moved)}"
        return text

    def _merging(self) -> str:
        if (update := self.update) is None:
            return ""
        left = f", {show_seconds(self.left)} left" if self.left else ""
        return (
            f"{self.share:4.0%}  {show_size(update.bytes_done)}"
            f" of {show_size(update.bytes_total)}, "
            f"{update.units_done} of {counted(update.units_total, 'tensor')}{left}"
        )

    def _downloading(self) -> str:
        fetched = self.fetched
        if fetched is None or fetched.bytes_done >= fetched.bytes_total:
            return ""
        return (
            f"downloaded {show_size(fetched.bytes_done)} of {show_size(fetched.bytes_total)}, "
            f"now {fetched.file}"
        )
