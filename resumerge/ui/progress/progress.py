"""Progress of a merge: a bar on a terminal, lines in a log, JSON Lines for programs."""

from __future__ import annotations

import time
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from resumerge.engine.reporter import ProgressUpdate, Reporter, Result
from resumerge.planning.estimates.estimate import Estimate
from resumerge.planning.plan import Plan
from resumerge.report.sizes import counted, show_seconds, show_size
from resumerge.sources.hub.prefetch import DownloadProgress
from resumerge.ui.progress.keepalive import LINE_SECONDS, LastSaid, Ticker
from resumerge.ui.progress.progress_state import Course
from resumerge.ui.terminal.console import print_json_line

ROOM_FOR_BAR, ROOM_FOR_SIZES = 80, 60
"""Columns of a terminal from which a bar has these."""


class ConsoleReporter(Reporter):
    """For people.

    Args:
        bar: a bar that moves, which takes a terminal; else lines. By default, if there is one.
        said: when something was last printed, for others to know.
    """

    def __init__(
        self, console: Console, *, bar: bool | None = None, said: LastSaid | None = None
    ) -> None:
        self._console = console
        self._as_bar = console.is_terminal if bar is None else bar
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said = said or LastSaid()
        self._course = Course()
        self._started = time.monotonic()
        self._ticker = Ticker(self._tick)

    def doing(self, what: str) -> None:
        self._course.doing(what)

    def heartbeat(self) -> None:
        self._course.heartbeat()

    def planned(self, run: str, plan: Plan, estimate: Estimate, *, resumed: bool) -> None:
        for note in (*plan.notes, *estimate.notes):
            self.note(note)
        verb = "Going on with" if resumed else "Run"
        self._say(
            f"{verb} [bold]{run}[/bold]: {plan.recipe.merge_method} of "
            f"{counted(len(plan.sources), 'model')}, "
            f"{counted(len(plan.units), 'tensor')}, {show_size(plan.output_bytes)} in "
            f"{counted(len(plan.shards), 'shard')}; "
            f"peak memory about {show_size(estimate.peak_rss)}, "
            f"disk {show_size(estimate.disk)}, about {show_seconds(estimate.seconds)}; "
            f"largest tensor {estimate.largest.name}, {show_size(estimate.largest.nbytes)}"
        )
        if estimate.download:
            self._say(
                f"Downloading {show_size(estimate.download)} in "
                f"{counted(estimate.download_files, 'file')}"
            )

    def fetching(self, fetched: DownloadProgress) -> None:
        self._course.fetching(fetched)
        if self._as_bar and fetched.bytes_done < fetched.bytes_total:
            self._show("downloaded", fetched.bytes_done, fetched.bytes_total, fetched.file)

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._course.pulsed(progressed)
        if self._as_bar:
            self._show("merged", progressed.bytes_done, progressed.bytes_total, progressed.unit)

    def _show(self, what: str, done: int, total: int, now: str) -> None:
        """A bar of its own for downloading and for merging."""
        if self._bar is None:
            columns = _columns(self._console.width)
            self._bar = Progress(*columns, console=self._console, transient=True, expand=True)
            self._tasks = {}
            self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total, size="", now="")
        size = f"{show_size(done)} of {show_size(total)}"
        self._bar.update(self._tasks[what], completed=done, size=size, now=now)

    def note(self, text: str) -> None:
        self._say(f"[yellow]note:[/yellow] {escape(text)}")

    def done(self, result: Result) -> None:
        self.close()
        if result.already_done:
            self._say(f"Run {result.id} is already done: {escape(result.places)}")
            return
        spent = show_seconds(time.monotonic() - self._started)
        self._say(f"[green]Done[/green] in {spent}: {escape(result.places)}")

    def close(self) -> None:
        """Say no more, and take the bar off the terminal."""
        self._ticker.stop()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _tick(self) -> None:
        """In the ticker's thread. A bar draws itself."""
        if self._bar is not None:
            self._said.now()
        elif self._said.silence >= LINE_SECONDS:
            self._say(escape(self._course.line()))

    def _say(self, text: str) -> None:
        self._said.now()
        self._console.print(text, markup=True, highlight=False, soft_wrap=True)


def _columns(width: int) -> list[ProgressColumn]:
    """What a bar says, as far as so many columns have room; the last of it gets what is left."""
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return [
        TextColumn("{task.description}"),
        *([BarColumn(bar_width=width // 4)] if width >= ROOM_FOR_BAR else []),
        TextColumn("{task.percentage:3.0f}%"),
        *([TextColumn("{task.fields[size]}")] if width >= ROOM_FOR_SIZES else []),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}", markup=False, table_column=rest),
    ]


class QuietReporter(Reporter):
    """Only what a person should know."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def close(self) -> None:
        """There is nothing to take away."""

    def note(self, text: str) -> None:
        self._console.print(f"note: {text}", markup=False, highlight=False, soft_wrap=True)


class JsonReporter(Reporter):
    """For programs: one JSON object a line."""

    def __init__(self, stream: TextIO, said: LastSaid | None = None) -> None:
        self._stream = stream
        self._fetched = ("", 0)
        self._said = said or LastSaid()
        self._course = Course()
        self._ticker = Ticker(self._tick)

    def doing(self, what: str) -> None:
        self._course.doing(what)

    def heartbeat(self) -> None:
        self._course.heartbeat()

    def close(self) -> None:
        """Say no more."""
        self._ticker.stop()

    def _tick(self) -> None:
        """In the ticker's thread."""
        if self._said.silence >= LINE_SECONDS:
            self._write("alive", doing=self._course.phase, text=self._course.line().strip())

    def planned(self, run: str, plan: Plan, estimate: Estimate, *, resumed: bool) -> None:
        self._write(
            "planned",
            run=run,
            resumed=resumed,
            units=len(plan.units),
            bytes=plan.output_bytes,
            shards=len(plan.shards),
            predicted_peak_rss=estimate.peak_rss,
            disk_needed=estimate.disk,
            download_bytes=estimate.download,
            estimate_s=estimate.seconds,
            basis=estimate.basis,
            largest_unit={"name": estimate.largest.name, "bytes": estimate.largest.nbytes},
            notes=[*plan.notes, *estimate.notes],
        )

    def fetching(self, fetched: DownloadProgress) -> None:
        self._course.fetching(fetched)
        state = (fetched.file, fetched.bytes_done)
        if state != self._fetched:
            self._fetched = state
            self._write(
                "fetching",
                file=fetched.file,
                bytes={"total": fetched.bytes_total, "done": fetched.bytes_done},
            )

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._course.pulsed(progressed)
        self._write(
            "progress",
            units={"total": progressed.units_total, "done": progressed.units_done},
            bytes={"total": progressed.bytes_total, "done": progressed.bytes_done},
        )

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def done(self, result: Result) -> None:
        self._write(
            "done",
            run=result.id,
            output=result.where,
            ledger=str(result.ledger),
            mirror=result.mirror,
            already_done=result.already_done,
            merging_s=round(result.merging_seconds, 3),
        )

    def _write(self, kind: str, **data: Any) -> None:
        self._said.now()
        print_json_line(self._stream, kind, **data)
