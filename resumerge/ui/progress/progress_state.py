"""How far a run is, as its reporter heard it: what a line, or a picture, says at any moment."""

from __future__ import annotations

import time
from dataclasses import dataclass

from resumerge.engine.reporter import ProgressUpdate
from resumerge.report.sizes import counted, show_seconds, show_size
from resumerge.sources.hub.prefetch import DownloadProgress

STILL_SECONDS = 8.0
"""Without a block, or a byte, for longer, it is said for how long."""


@dataclass
class Course:
    """Written by the thread that merges, read by the one that shows it.

    Args:
        phase: what is done now, like ``opening the models``.
        began: when the phase did, on the monotonic clock.
        moved: when bytes were last read, computed or written.
    """

    phase: str = "starting"
    began: float = 0.0
    moved: float = 0.0
    progressed: ProgressUpdate | None = None
    fetched: DownloadProgress | None = None
    _first: tuple[float, int] | None = None
    _figures: bool = False
    """Whether this phase has told how far it is."""

    def __post_init__(self) -> None:
        self.began = self.moved = time.monotonic()

    def doing(self, what: str) -> None:
        """Another phase begins."""
        self.phase, self.began = what, time.monotonic()
        self.moved = self.began
        self._figures = False

    def heartbeat(self) -> None:
        """Something moved."""
        self.moved = time.monotonic()

    def pulsed(self, progressed: ProgressUpdate) -> None:
        """A batch was computed."""
        self.heartbeat()
        if self._first is None:
            self._first = (self.moved, progressed.bytes_done)
        self.progressed, self._figures = progressed, True

    def fetching(self, fetched: DownloadProgress) -> None:
        """Files arrive, or did."""
        if self.fetched is None or fetched.bytes_done != self.fetched.bytes_done:
            self.heartbeat()
        self.fetched, self._figures = fetched, True

    @property
    def share(self) -> float:
        """Of the output that is computed."""
        return (
            self.progressed.bytes_done / max(1, self.progressed.bytes_total)
            if self.progressed
            else 0.0
        )

    @property
    def rate(self) -> float | None:
        """Bytes of output in a second, since the first batch."""
        if self.progressed is None or self._first is None:
            return None
        seconds, done = self.moved - self._first[0], self.progressed.bytes_done - self._first[1]
        return done / seconds if seconds > 0 and done > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds until everything is computed, at that rate."""
        if self.progressed is None or not self.rate:
            return None
        return (self.progressed.bytes_total - self.progressed.bytes_done) / self.rate

    def line(self) -> str:
        """All of it in a line of text; names in it are as they are."""
        now = time.monotonic()
        said = [self._merged(), self._arriving()] if self._figures else []
        text = "; ".join(part for part in said if part)
        if not text:
            return f"{self.phase}: {show_seconds(now - self.began)} so far"
        if now - self.moved > STILL_SECONDS:
            text += f"; nothing has moved for {show_seconds(now - self.moved)}"
        return text

    def _merged(self) -> str:
        if (progressed := self.progressed) is None:
            return ""
        left = f", {show_seconds(self.left)} left" if self.left else ""
        return (
            f"{self.share:4.0%}  {show_size(progressed.bytes_done)}"
            f" of {show_size(progressed.bytes_total)}, "
            f"{progressed.units_done} of {counted(progressed.units_total, 'tensor')}{left}"
        )

    def _arriving(self) -> str:
        fetched = self.fetched
        if fetched is None or fetched.bytes_done >= fetched.bytes_total:
            return ""
        return (
            f"downloaded {show_size(fetched.bytes_done)} of {show_size(fetched.bytes_total)}, "
            f"now {fetched.file}"
        )
