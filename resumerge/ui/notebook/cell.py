"""A run as a live picture in a notebook's cell: a bar, its figures, and how it ended.

One output of the cell is updated in place. It is plain HTML and text, without a script or a widget
library, so that it stays where the notebook is saved, sent on, or shown by another program.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from resumerge.engine.reporter import ProgressUpdate, Reporter, Result
from resumerge.errors import Interrupted, Resumable
from resumerge.host.memory import peak_rss, rss
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.planning.estimates.estimate import Estimate
from resumerge.planning.plan import Plan
from resumerge.report.sizes import counted, show_seconds, show_size
from resumerge.sources.hub.prefetch import DownloadProgress
from resumerge.ui.html.html import tag
from resumerge.ui.html.parts import bar, card, outcome, section, tiles_of
from resumerge.ui.progress.keepalive import Ticker
from resumerge.ui.progress.progress_state import Course

LEAST_SECONDS = 0.5
"""Between two updates: a notebook keeps and sends every one of them."""

MIRROR_SECONDS = 2.0
"""Between two looks at what the ledger says of the mirror."""

MOST_NOTES = 5
"""The newest of them are shown."""


class CellReporter(Reporter):
    """Shows a run in the cell that is executed.

    Args:
        state: the folder of the ledgers.
    """

    def __init__(self, state: Path) -> None:
        from IPython.display import display

        self._state = state
        self._course = Course()
        self._lock = threading.Lock()
        self._run = self._headline = ""
        self._budget = 0
        self._notes: list[str] = []
        self._ended: tuple[str, list[str]] | None = None
        self._started = self._shown_at = time.monotonic()
        self._mirror, self._mirror_at = "", float("-inf")
        self._handle: Any = display(self._bundle(), raw=True, display_id=True)
        self._ticker = Ticker(self._tick)

    # What the run tells

    def doing(self, what: str) -> None:
        self._course.doing(what)

    def planned(self, run: str, plan: Plan, estimate: Estimate, *, resumed: bool) -> None:
        self._run = run
        self._headline = (
            f"{'Going on: ' if resumed else ''}{plan.recipe.merge_method} of "
            f"{counted(len(plan.sources), 'model')}, {counted(len(plan.units), 'tensor')}, "
            f"{show_size(plan.output_bytes)}"
        )
        for note in (*plan.notes, *estimate.notes):
            self.note(note)

    def began(self, attempt: int, budget: int) -> None:
        self._budget = budget

    def heartbeat(self) -> None:
        self._course.heartbeat()

    def fetching(self, fetched: DownloadProgress) -> None:
        self._course.fetching(fetched)

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._course.pulsed(progressed)

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-MOST_NOTES:]

    def done(self, result: Result) -> None:
        self._run = self._run or result.id
        spent = show_seconds(time.monotonic() - self._started)
        how = "was done already" if result.already_done else f"in {spent}"
        self._ended = ("done", [f"Done, {how}: {result.places}"])

    def stopped(self, stopped: Interrupted | Resumable) -> None:
        """It stopped short, and says how to go on."""
        again = f"To go on, run this cell again, or: {stopped.go_on}"
        self._ended = ("interrupted", [stopped.told, again])

    def close(self) -> None:
        """Show how it ended, and nothing more."""
        self._ticker.stop()
        if self._ended is None:
            self._ended = ("failed", ["It could not be run; see below."])
        self._mirror_at = float("-inf")
        self._show()

    # What is shown

    def _tick(self) -> None:
        if time.monotonic() - self._shown_at >= LEAST_SECONDS:
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        self._handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        with suppress(OSError, sqlite3.Error):
            self._look_at_mirror()
        return {"text/html": self._html(), "text/plain": self._text()}

    def _text(self) -> str:
        if self._ended is not None:
            return "\n".join(self._ended[1])
        return f"{self._run or 'resumerge'}: {self._course.line().strip()}"

    def _html(self) -> str:
        state, last = self._ended or ("running", [])
        course = self._course
        share = 1.0 if state == "done" else course.share
        progressed = course.progressed
        left = course.left if state == "running" else None
        tiles = [
            (
                "computed",
                show_size(progressed.bytes_done) if progressed else "nothing yet",
                f"of {show_size(progressed.bytes_total)}" if progressed else "",
            ),
            (
                "tensors",
                str(progressed.units_done) if progressed else "0",
                f"of {progressed.units_total}" if progressed else "",
            ),
            ("speed", f"{show_size(course.rate)}/s" if course.rate else "none yet", ""),
            ("time left", show_seconds(left) if left is not None else "", ""),
            (
                "memory",
                show_size(rss() if state == "running" else peak_rss()),
                f"budget {show_size(self._budget)}" if self._budget else "",
            ),
        ]
        if state != "running":
            tiles[3] = ("took", show_seconds(time.monotonic() - self._started), "")
            if not course.rate:
                del tiles[2]
        if state == "done" and not progressed:
            tiles = [tile for tile in tiles if tile[0] == "took"]
        if self._mirror:
            tiles.append(("in the mirror", self._mirror, ""))
        return card(
            tag(
                "header",
                tag("h1", self._run or "resumerge", " ", outcome(state)),
                tag("p", self._headline, class_="muted"),
                bar(share),
                tag("p", f"{share:.0%}. {course.line().strip()}") if state == "running" else None,
                *(tag("p", line) for line in last),
                tiles_of(tiles),
            ),
            section("Notes", tag("ul", *(tag("li", note) for note in self._notes)))
            if self._notes
            else None,
        )

    def _look_at_mirror(self) -> None:
        """Shards that the mirror has, as the ledger says; empty where there is no mirror."""
        path = self._state / self._run / LEDGER_FILE
        if not self._run or time.monotonic() - self._mirror_at < MIRROR_SECONDS:
            return
        self._mirror_at = time.monotonic()
        with closing(Ledger(path, read_only=True)) as ledger:
            url, shards = (ledger.run() or {}).get("mirror"), ledger.shards()
            mirrored = ledger.mirrored()
        there = sum(shard["name"] in mirrored for shard in shards)
        self._mirror = f"{there} of {len(shards)} shards" if url else ""
