"""The state of a run's progress, for reporters that show it as lines or bars."""

from __future__ import annotations

import time

from resumerge.engine.reporter import ProgressUpdate, Reporter
from resumerge.sizes import counted, show_seconds, show_size, so_far
from resumerge.sources.remote.prefetch import DownloadProgress
from resumerge.ui.progress.bars import Pace

STALL_SECONDS = 8.0
"""Seconds without progress after which the line shows for how long there was no progress."""


WAITING_SECONDS = 2.0
"""Seconds for which a run counts as waiting after its last message of waiting."""


class ProgressState(Reporter):
    """The base of reporters that show progress. It stores the reports.

    The thread that merges writes the state. The thread of a `Ticker` reads it.

    Attributes:
        phase: the current work, like ``opening the models``.
        phase_started: when the phase started, on the monotonic clock.
        moved: the time of the last progress (bytes read, computed or written), on the monotonic
            clock.
        update: the last figures of merging; None before the first.
        fetched: the last figures of downloading; None before the first.
    """

    def __init__(self) -> None:
        self.phase = "starting"
        self.phase_started = self.moved = time.monotonic()
        self.update: ProgressUpdate | None = None
        self.fetched: DownloadProgress | None = None
        self._merged, self._downloaded = Pace(), Pace()
        self._waits: tuple[float, str] | None = None
        self._waits_since = 0.0
        self._has_figures = False  # whether the present phase has reported figures
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
        """The computed share of the output, from 0 to 1."""
        return self.update.bytes_done / max(1, self.update.bytes_total) if self.update else 0.0

    def waiting(self, text: str) -> None:
        if not self.waits:
            self._waits_since = time.monotonic()
        self._waits = time.monotonic(), text

    @property
    def waits(self) -> str:
        """The text of the last message of waiting; empty if the run does not wait now."""
        reported_at, text = self._waits or (float("-inf"), "")
        return text if time.monotonic() - reported_at < WAITING_SECONDS else ""

    @property
    def rate(self) -> float | None:
        """The mean bytes of output per second since the first figures; None until measurable."""
        return self._merged.rate

    @property
    def left(self) -> str:
        """The estimated time until the output is computed, as text; empty without an estimate."""
        update = self.update
        return self._merged.left(update.bytes_total - update.bytes_done) if update else ""

    def line(self) -> str:
        """Return the state as a line of text. Control characters in names are not escaped."""
        now = time.monotonic()
        figures = [self._merging(), self._downloading()] if self._has_figures else []
        text = "; ".join(figure for figure in figures if figure)
        if waiting_text := self.waits:
            return so_far(waiting_text, now - self._waits_since)
        if not text:
            phase = self.phase
            if self._read:
                phase += f", {show_size(self._read[0])} of {show_size(self._read[1])}"
            return so_far(phase, now - self.phase_started)
        if now - self.moved > STALL_SECONDS:
            text += f"; no progress for {show_seconds(int(now - self.moved))}"
        return text

    def _merging(self) -> str:
        if (update := self.update) is None:
            return ""
        speed = f", {show_size(self.rate)}/s" if self.rate else ""
        time_left = f", {self.left} left" if self.left else ""
        return (
            f"{self.share:4.0%}  {show_size(update.bytes_done)}"
            f" of {show_size(update.bytes_total)}, "
            f"{update.units_done} of {counted(update.units_total, 'tensor')}{speed}{time_left}"
        )

    def _downloading(self) -> str:
        download = self.fetched
        if download is None or download.bytes_done >= download.bytes_total:
            return ""
        return (
            f"downloaded {show_size(download.bytes_done)} of {show_size(download.bytes_total)}, "
            f"now {download.file}"
        )
