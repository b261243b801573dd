"""Progress of a merge: a bar on a terminal, lines in a log, JSON Lines for programs."""

from __future__ import annotations

import time
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from resumerge.engine.report import Pulse, Reporter, Result
from resumerge.planning.estimate import Estimate
from resumerge.planning.model import Plan
from resumerge.sources.fetcher import Fetched
from resumerge.ui.console import print_json_line
from resumerge.ui.sizes import show_seconds, show_size

LINE_SECONDS = 5.0
"""Time between two lines where there is no terminal."""


class ConsoleReporter(Reporter):
    """For people."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_line = time.monotonic()
        self._started = time.monotonic()

    def planned(self, run: str, plan: Plan, estimate: Estimate, *, resumed: bool) -> None:
        for note in (*plan.notes, *estimate.notes):
            self.note(note)
        verb = "Going on with" if resumed else "Run"
        self._say(
            f"{verb} [bold]{run}[/bold]: {plan.recipe.merge_method} of {len(plan.sources)} models, "
            f"{len(plan.units)} tensors, {show_size(plan.output_bytes)} in "
            f"{len(plan.shards)} shard{'s' * (len(plan.shards) != 1)}; "
            f"peak memory about {show_size(estimate.peak_rss)}, "
            f"disk {show_size(estimate.disk)}, about {show_seconds(estimate.seconds)}; "
            f"largest tensor {estimate.largest.name}, {show_size(estimate.largest.nbytes)}"
        )
        if estimate.download:
            self._say(
                f"Downloading {show_size(estimate.download)} in {estimate.download_files} files"
            )

    def fetching(self, fetched: Fetched) -> None:
        arriving = fetched.bytes_done < fetched.bytes_total
        if arriving and self._console.is_terminal:
            self._show("downloaded", fetched.bytes_done, fetched.bytes_total, fetched.file)
        elif arriving:
            self._line(
                f"downloaded {show_size(fetched.bytes_done)} of {show_size(fetched.bytes_total)}, "
                f"now {escape(fetched.file)}"
            )

    def pulse(self, pulse: Pulse) -> None:
        if not self._console.is_terminal:
            share = pulse.bytes_done / max(1, pulse.bytes_total)
            self._line(
                f"{share:4.0%}  {show_size(pulse.bytes_done)} of {show_size(pulse.bytes_total)}, "
                f"{pulse.units_done} of {pulse.units_total} tensors"
            )
            return
        self._show("merged", pulse.bytes_done, pulse.bytes_total, pulse.unit)

    def _show(self, what: str, done: int, total: int, now: str) -> None:
        """A bar of its own for downloading and for merging."""
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f}%"),
                TextColumn("{task.fields[size]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[now]}", markup=False),
                console=self._console,
                transient=True,
            )
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
            self._say(f"Run {result.id} is already done: {escape(str(result.output))}")
            return
        spent = show_seconds(time.monotonic() - self._started)
        self._say(f"[green]Done[/green] in {spent}: {escape(str(result.output))}")

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, text: str) -> None:
        if time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=True, highlight=False, soft_wrap=True)


class JsonReporter(Reporter):
    """For programs: one JSON object a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fetched = ("", 0)

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

    def fetching(self, fetched: Fetched) -> None:
        state = (fetched.file, fetched.bytes_done)
        if state != self._fetched:
            self._fetched = state
            self._write(
                "fetching",
                file=fetched.file,
                bytes={"total": fetched.bytes_total, "done": fetched.bytes_done},
            )

    def pulse(self, pulse: Pulse) -> None:
        self._write(
            "progress",
            units={"total": pulse.units_total, "done": pulse.units_done},
            bytes={"total": pulse.bytes_total, "done": pulse.bytes_done},
        )

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def done(self, result: Result) -> None:
        self._write(
            "done",
            run=result.id,
            output=str(result.output),
            ledger=str(result.ledger),
            already_done=result.already_done,
            merging_s=round(result.merging_seconds, 3),
        )

    def _write(self, kind: str, **data: Any) -> None:
        print_json_line(self._stream, kind, **data)
