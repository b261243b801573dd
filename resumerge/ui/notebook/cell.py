"""The live output of a run in a notebook's cell: a bar, figures, and the end of the run.

One output of the cell is updated in place. It is HTML and text, without scripts or widgets, so that
it is saved with the notebook and shown by other programs.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from resumerge.documents.history import attempt_seconds
from resumerge.documents.run import describe_run
from resumerge.engine.changes import changes_of
from resumerge.engine.reporter import Result
from resumerge.errors import Interrupted, Resumable
from resumerge.host.memory import rss
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import is_output_in
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.sizes import counted, show_seconds, show_size
from resumerge.ui.html.environment import render
from resumerge.ui.html.strips import strips_of
from resumerge.ui.progress.keepalive import Ticker
from resumerge.ui.progress.progress_state import ProgressState

LEAST_SECONDS = 0.5
"""The least seconds between two updates, each of which a notebook stores and sends."""

MIRROR_SECONDS = 2.0
"""The least seconds between two reads of the mirror's state in the ledger."""

Tile = tuple[str, str, str]
"""A fact: its name, its value, and a second value to compare it with."""

MOST_NOTES = 5
"""The most notes that are shown. The newest notes are kept."""


class CellReporter(ProgressState):
    """A reporter that shows a run in the output of the executed cell.

    Args:
        state_dir: the state folder; the run's ledger in it has the figures of the mirror.
    """

    def __init__(self, state_dir: Path) -> None:
        from IPython.display import display

        super().__init__()
        self._state_dir = state_dir
        self._run = self._headline = ""
        self._budget = 0
        self._notes: list[str] = []
        self._ended: tuple[str, list[str]] | None = None
        self._updated_at = time.monotonic()
        self._mirror, self._mirror_at = "", float("-inf")
        self._mirror_label = "in the mirror"
        self._handle: Any = display(  # type: ignore[no-untyped-call]
            self._bundle(), raw=True, display_id=True
        )
        self._ticker = Ticker(self._tick)

    # Reports of the run

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        self._run = run
        self._headline = (
            f"{'Resuming: ' if resumed else ''}{plan.merged}, "
            f"{counted(len(plan.units), 'tensor')}, "
            f"{show_size(plan.output_bytes)}"
        )
        for note in (*plan.notes, *predicted.estimate.notes):
            self.note(note)

    def began(self, attempt: int, budget: int) -> None:
        self._budget = budget

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-MOST_NOTES:]

    def done(self, result: Result) -> None:
        self._run = self._run or result.id
        for note in result.notes:
            if note not in self._notes:
                self.note(note)
        duration = show_seconds(result.seconds)
        first_words = "Already done" if result.already_done else f"Done in {duration}"
        self._ended = ("done", [f"{first_words}: {result.places}"])

    def stopped(self, stopped: Interrupted | Resumable) -> None:
        """Show that the run stopped before its end, and how to resume it."""
        again = f"To resume, run this cell again, or: {stopped.how_to_resume}"
        self._ended = ("interrupted", [stopped.text, again])

    def close(self) -> None:
        """Show how the run ended, and stop the updates."""
        self._ticker.stop()
        if self._ended is None:
            self._ended = ("failed", ["The run failed; the error is below."])
        self._mirror_at = float("-inf")
        self._show()

    # Content of the cell

    def _tick(self) -> None:
        if time.monotonic() - self._updated_at >= LEAST_SECONDS:
            self._show()

    def _show(self) -> None:
        self._updated_at = time.monotonic()
        self._handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        with suppress(OSError, sqlite3.Error):
            self._read_mirror()
        return {"text/html": self._html(), "text/plain": self._text()}

    def _text(self) -> str:
        if self._ended is not None:
            return "\n".join(self._ended[1])
        return f"{self._run or 'resumerge'}: {self.line().strip()}"

    def _html(self) -> str:
        state, end_lines = self._ended or ("running", [])
        share = 1.0 if state == "done" else self.share
        run = None if state == "running" else self._described()
        tiles = self._live_tiles() if run is None else self._last_tiles(run)
        if self._mirror:
            tiles.append((self._mirror_label, self._mirror, ""))
        lines = [f"{share:.0%}. {self.line().strip()}"] if state == "running" else end_lines
        return render(
            "cell.html.j2",
            run=self._run or "resumerge",
            state=state,
            headline=self._headline,
            share=share,
            lines=lines,
            tiles=tiles,
            notes=self._notes,
            **(self._accounts(run) if run and state == "done" else {"accounts": None}),
        )

    def _accounts(self, run: dict[str, Any]) -> dict[str, Any]:
        """Return the accounts of a finished model for the template."""
        path = self._state_dir / self._run / LEDGER_FILE
        with suppress(OSError, sqlite3.Error), closing(Ledger(path, read_only=True)) as ledger:
            return {"accounts": run["accounts"], "strips": strips_of(changes_of(ledger))}
        return {"accounts": None}

    def _described(self) -> dict[str, Any]:
        """Return the document of the run; empty before the run is created."""
        folder = self._state_dir / self._run
        return describe_run(folder) if self._run and folder.is_dir() else {}

    def _live_tiles(self) -> list[Tile]:
        update = self.update
        return [
            (
                "computed",
                show_size(update.bytes_done) if update else "nothing yet",
                f"of {show_size(update.bytes_total)}" if update else "",
            ),
            (
                "tensors",
                str(update.units_done) if update else "0",
                f"of {update.units_total}" if update else "",
            ),
            ("speed", f"{show_size(self.rate)}/s" if self.rate else "none yet", ""),
            ("time left", self.left, ""),
            (
                "memory",
                show_size(rss()),
                f"budget {show_size(self._budget)}" if self._budget else "",
            ),
        ]

    def _last_tiles(self, run: dict[str, Any]) -> list[Tile]:
        """Return the facts of the ended attempt, from the document of the run."""
        if not self._budget:
            return []  # no attempt began
        byte_counts, units, last_attempt = run["bytes"], run["units"], run["attempts"][-1]
        rate, peak_rss = run["rate_bytes_per_s"], run["memory"]["peak_rss"]
        return [
            (
                "committed",
                show_size(byte_counts["committed"]),
                f"of {show_size(byte_counts['total'])}",
            ),
            ("tensors", str(units["committed"]), f"of {units['total']}"),
            *([("speed", f"{show_size(rate)}/s", "")] if rate else []),
            ("took", show_seconds(attempt_seconds(last_attempt)), ""),
            ("peak memory", show_size(peak_rss), f"budget {show_size(self._budget)}"),
        ]

    def _read_mirror(self) -> None:
        """Read the number of shards in the mirror from the ledger, if the run has a mirror."""
        path = self._state_dir / self._run / LEDGER_FILE
        if not self._run or time.monotonic() - self._mirror_at < MIRROR_SECONDS:
            return
        self._mirror_at = time.monotonic()
        with closing(Ledger(path, read_only=True)) as ledger:
            run, shards = ledger.run_or_none() or {}, ledger.shards.all()
            mirrored_names = ledger.mirrored.checksums()
        mirrored_count = sum(shard["name"] in mirrored_names for shard in shards)
        self._mirror = f"{mirrored_count} of {len(shards)} shards" if run.get("mirror") else ""
        if is_output_in(run.get("output", ""), run.get("mirror")):
            self._mirror_label = "in the bucket"
