"""Progress for people: a bar on a terminal, lines in a log, or notes only."""

from __future__ import annotations

import time

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
from resumerge.report.resume_command import next_command
from resumerge.sizes import counted, show_seconds, show_size
from resumerge.sources.hub.prefetch import DownloadProgress
from resumerge.ui.progress.keepalive import LINE_SECONDS, PrintClock, Ticker
from resumerge.ui.progress.progress_state import ProgressState

LEAST_FOR_BAR, LEAST_FOR_SIZES = 80, 60
"""Columns of a terminal from which its bar and its sizes are shown."""


class ConsoleReporter(ProgressState):
    """Prints a bar or lines.

    Args:
        bar: a bar, which needs a terminal; else lines. By default a bar where there is a terminal.
        clock: is reset whenever something is printed.
        announced: a worker before this one has said what the run is, and has its notes printed.
    """

    def __init__(
        self,
        console: Console,
        *,
        bar: bool | None = None,
        clock: PrintClock | None = None,
        announced: bool = False,
    ) -> None:
        super().__init__()
        self._announced = announced
        self._console = console
        self._as_bar = console.is_terminal if bar is None else bar
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._clock = clock or PrintClock()
        self._started = time.monotonic()
        self._ticker = Ticker(self._tick)

    def planned(self, run: str, plan: Plan, estimate: Estimate, *, resumed: bool) -> None:
        if self._announced:
            return
        for note in (*plan.notes, *estimate.notes):
            self.note(note)
        verb = "Resuming" if resumed else "Run"
        self._print(
            f"{verb} [bold]{run}[/bold]: {plan.recipe.merge_method} of "
            f"{counted(len(plan.sources), 'model')}, "
            f"{counted(len(plan.units), 'tensor')}, {show_size(plan.output_bytes)} in "
            f"{counted(len(plan.shards), 'shard')}; "
            f"peak memory about {show_size(estimate.peak_rss)}, "
            f"disk {show_size(estimate.disk)}, about {show_seconds(estimate.seconds)}; "
            f"largest tensor {estimate.largest.name}, {show_size(estimate.largest.nbytes)}"
        )
        if estimate.download:
            self._print(
                f"Downloading {show_size(estimate.download)} in "
                f"{counted(estimate.download_files, 'file')}"
            )

    def fetching(self, fetched: DownloadProgress) -> None:
        super().fetching(fetched)
        if self._as_bar and fetched.bytes_done < fetched.bytes_total:
            self._show("downloaded", fetched.bytes_done, fetched.bytes_total, fetched.file)

    def progressed(self, progressed: ProgressUpdate) -> None:
        super().progressed(progressed)
        if self._as_bar:
            self._show("merged", progressed.bytes_done, progressed.bytes_total, progressed.unit)

    def _show(self, what: str, done: int, total: int, now: str) -> None:
        """Update the bar for downloading, or the one for merging."""
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
        self._print(f"[yellow]note:[/yellow] {escape(text)}")

    def done(self, result: Result) -> None:
        self.close()
        if result.already_done:
            self._print(f"Run {result.id} is already done: {escape(result.places)}")
            return
        spent = show_seconds(time.monotonic() - self._started)
        self._print(
            f"[green]Done[/green] in {spent}: {escape(result.places)} "
            f"({show_size(result.output_bytes)}, peak memory {show_size(result.peak_rss)})"
        )
        state = result.ledger.parents[1]
        if result.is_here:
            upload = next_command(state, "push", str(result.output), "ORG/NAME")
            self._print(f"[dim]To upload it:[/dim] {escape(upload)}")
        remove = next_command(state, "clean", result.id)
        self._print(f"[dim]To remove its ledger:[/dim] {escape(remove)}")
        for note in result.notes:  # what the model lacks must not be overlooked
            self.note(note)

    def close(self) -> None:
        """Print no more, and remove the bar from the terminal."""
        self._ticker.stop()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _tick(self) -> None:
        """Called by the ticker's thread. A bar draws itself."""
        if self._bar is not None:
            self._clock.reset()
        elif self._clock.silence >= LINE_SECONDS:
            self._print(escape(self.line()))

    def _print(self, text: str) -> None:
        self._clock.reset()
        self._console.print(text, markup=True, highlight=False, soft_wrap=True)


def _columns(width: int) -> list[ProgressColumn]:
    """The columns of a bar that fit into the width; the last one gets the rest."""
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return [
        TextColumn("{task.description}"),
        *([BarColumn(bar_width=width // 4)] if width >= LEAST_FOR_BAR else []),
        TextColumn("{task.percentage:3.0f}%"),
        *([TextColumn("{task.fields[size]}")] if width >= LEAST_FOR_SIZES else []),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}", markup=False, table_column=rest),
    ]


class QuietReporter(Reporter):
    """Prints notes, and nothing else."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def close(self) -> None:
        """Nothing is left on the terminal."""

    def note(self, text: str) -> None:
        self._console.print(f"note: {text}", markup=False, highlight=False, soft_wrap=True)
