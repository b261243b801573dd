"""How far a run is: what a progress line, or a picture, says at any moment."""

from __future__ import annotations

import time

from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.sizes import counted, show_range, show_seconds, show_size
from resumerge.sources.hub.prefetch import DownloadProgress

STALL_SECONDS = 8.0
"""After so long without progress, the line says for how long there was none."""


WAITING_SECONDS = 2.0
"""A run that has not said for so long that it waits does not wait any more."""

RECENT_SECONDS = 15.0
"""What counts as of late."""

SWING = 1.5
"""Between the time left at the speed of late and at the mean speed, above which both are said."""

KNOWN_SECONDS = 3.0
"""Of progress, before a speed is said."""


class Pace:
    """How fast bytes come: since the first figures, and of late."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []
        """(time, bytes): the first figures, and those of late."""

    def add(self, done: int) -> None:
        """So many bytes are done now, of what there is to do."""
        now = time.monotonic()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > RECENT_SECONDS:
            del self._seen[1]

    @property
    def rate(self) -> float | None:
        """Bytes a second since the first figures; None until it is known."""
        return self._rate_since(0)

    def left(self, nbytes: int) -> str:
        """The time for so many more bytes, ``2 to 5 min``; empty until it is known."""
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
        self._merged, self._downloaded = Pace(), Pace()
        self._waits: tuple[float, str] | None = None
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
        self._merged.add(progressed.bytes_done)
        self.update, self._has_figures = progressed, True

    def fetching(self, fetched: DownloadProgress) -> None:
        if self.fetched is None or fetched.bytes_done != self.fetched.bytes_done:
            self.heartbeat()
            self._downloaded.add(fetched.bytes_done)
        self.fetched, self._has_figures = fetched, True

    @property
    def share(self) -> float:
        """Of the output that is computed, from 0 to 1."""
        return self.update.bytes_done / max(1, self.update.bytes_total) if self.update else 0.0

    def waiting(self, text: str) -> None:
        self._waits = time.monotonic(), text

    @property
    def waits(self) -> str:
        """What the run waits for now; empty if it does not."""
        told, text = self._waits or (float("-inf"), "")
        return text if time.monotonic() - told < WAITING_SECONDS else ""

    @property
    def rate(self) -> float | None:
        """Bytes of output per second since the first batch; None until it is known."""
        return self._merged.rate

    @property
    def left(self) -> str:
        """The time until everything is computed, as text; empty until it is known."""
        update = self.update
        return self._merged.left(update.bytes_total - update.bytes_done) if update else ""

    def line(self) -> str:
        """The state as a line of text; control characters in names are not spelled out."""
        now = time.monotonic()
        parts = [self._merging(), self._downloading()] if self._has_figures else []
        text = "; ".join(part for part in parts if part)
        if waits := self.waits:
            return waits
        if not text:
            read = (
                f"{show_size(self._read[0])} of {show_size(self._read[1])}, " if self._read else ""
            )
            return f"{self.phase}: {read}{show_seconds(int(now - self.phase_started))} so far"
        if now - self.moved > STALL_SECONDS:
            text += f"; no progress for {show_seconds(int(now - self.moved))}"
        return text

    def _merging(self) -> str:
        if (update := self.update) is None:
            return ""
        rate = f", {show_size(self.rate)}/s" if self.rate else ""
        left = f", {self.left} left" if self.left else ""
        return (
            f"{self.share:4.0%}  {show_size(update.bytes_done)}"
            f" of {show_size(update.bytes_total)}, "
            f"{update.units_done} of {counted(update.units_total, 'tensor')}{rate}{left}"
        )

    def _downloading(self) -> str:
        fetched = self.fetched
        if fetched is None or fetched.bytes_done >= fetched.bytes_total:
            return ""
        return (
            f"downloaded {show_size(fetched.bytes_done)} of {show_size(fetched.bytes_total)}, "
            f"now {fetched.file}"
        )
