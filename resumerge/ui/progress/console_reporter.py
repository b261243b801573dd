"""Progress for people: a bar on a terminal, lines in a log, or only notes."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from resumerge.documents.accounts import describe_accounts, describe_changes
from resumerge.engine.opening.plan_rows import account_rows
from resumerge.engine.reporter import Reporter, Result
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.sizes import counted, show_estimate, show_seconds, show_size
from resumerge.ui.progress.bars import Bar, show_bars
from resumerge.ui.progress.keepalive import LINE_SECONDS, PrintClock, Seldom, Ticker, drawn
from resumerge.ui.progress.progress_state import STALL_SECONDS, ProgressState
from resumerge.ui.terminal.prose import say
from resumerge.ui.text.accounts import account_lines
from resumerge.ui.text.commands import loading_call, next_command
from resumerge.ui.text.numbers import whole_line

REPEATED_SECONDS = 60.0
"""A note is not repeated at the end if it was printed less than this many seconds before."""


class ConsoleReporter(ProgressState):
    """A reporter that draws a bar or the phase on a terminal, or prints lines.

    Args:
        bar: whether to draw a bar, which needs a terminal; None for a bar on every terminal.
        clock: reset whenever something is printed.
        announced: whether an earlier worker has printed the description and the notes of the run.
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
        self._clock = clock or PrintClock()
        self._noted: dict[str, float] = {}
        as_bar = console.is_terminal if bar is None else bar
        self._live = drawn(console, self._frame) if as_bar else None
        if self._live is not None:
            self._live.start()
        self._ticker = Ticker(self._tick)

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        if self._announced:
            return
        estimate = predicted.estimate
        for note in (*plan.notes, *estimate.notes):
            self.note(note)
        tensor_count = sum(len(unit.tensors) for unit in plan.units)
        self._print(
            f"{plan.merged}, "
            f"{counted(tensor_count, 'tensor')}, {show_size(plan.output_bytes)} in "
            f"{counted(len(plan.shards), 'shard')}; "
            f"peak memory about {show_size(predicted.need.peak_rss)}, "
            f"disk {show_size(estimate.disk)}, about {show_estimate(predicted.seconds)}; "
            f"largest tensor {estimate.largest.name}, {show_size(estimate.largest.nbytes)}",
            f"{'Resuming' if resumed else 'Run'} {run}:",
            "bold",
        )
        if estimate.download:
            streamed_bytes = sum(estimate.streamed.values())
            self._print(
                f"{'Fetching' if streamed_bytes else 'Downloading'} "
                f"{show_size(estimate.download)} in {counted(len(estimate.missing), 'file')}"
                + (f", {show_size(streamed_bytes)} of it streamed" if streamed_bytes else "")
            )

    def note(self, text: str) -> None:
        self._noted[text] = time.monotonic()
        self._print(text, "note:", "yellow")

    def waiting(self, text: str) -> None:
        has_just_begun = not self.waits
        super().waiting(text)
        if has_just_begun and self._live is None:
            self.note(text)

    def done(self, result: Result) -> None:
        self.close()
        if result.already_done:
            self._print(result.places, f"Run {result.id} is already done:")
            return
        self._print(
            f"in {show_seconds(result.seconds)}: {result.places} "
            f"({show_size(result.output_bytes)}, peak memory {show_size(result.peak_rss)})",
            "Done",
            "green",
        )
        accounts_document = describe_accounts(account_rows(result.accounts), every=False)
        for line in account_lines(accounts_document):
            self._print(line, "tensors:", "dim")
        if line := whole_line(describe_changes(result.changes)):
            self._print(line, "numbers:", "dim")
        assert result.ledger is not None
        state_folder = result.ledger.parents[1]
        if result.is_here:
            if call_to_load := loading_call(Path(result.output)):
                self._offer("To load it:", call_to_load)
            push_command = next_command(state_folder, "push", str(result.output), "ORG/NAME")
            self._offer("To upload it:", push_command)
        for note in result.notes:  # notes on the finished model must not be overlooked
            if time.monotonic() - self._noted.get(note, float("-inf")) > REPEATED_SECONDS:
                self.note(note)

    def close(self) -> None:
        """Stop printing, and remove the bar from the terminal."""
        self._ticker.stop()
        if self._live is not None:
            self._live.stop()

    def _tick(self) -> None:
        """Print a line if it is due and no bar is drawn. The ticker's thread calls this."""
        if self._live is not None:
            self._clock.reset()
        elif self._clock.is_due(LINE_SECONDS):
            self._print(self.line())

    def _frame(self) -> RenderableType:
        """Return the bars of downloading and merging, or a line with the phase."""
        download, update = self.fetched, self.update
        idle_seconds = time.monotonic() - self.moved
        idle_text = (
            f"no progress for {show_seconds(int(idle_seconds))}"
            if idle_seconds > STALL_SECONDS
            else ""
        )
        bars = []
        if download is not None and download.bytes_done < download.bytes_total:
            bytes_done, bytes_total = download.bytes_done, download.bytes_total
            bars.append(
                Bar(
                    "downloaded",
                    self._downloaded,
                    bytes_done,
                    bytes_total,
                    download.file,
                    idle_text,
                )
            )
        if update is not None:
            bytes_done, bytes_total = update.bytes_done, update.bytes_total
            bars.append(
                Bar("merged", self._merged, bytes_done, bytes_total, update.unit, idle_text)
            )
        if not self._has_figures or self.waits or not bars:
            return Text(self.line(), no_wrap=True, overflow="ellipsis")
        return show_bars(bars, self._console.width)

    def _offer(self, what: str, command: str) -> None:
        """Print a command for the user to type next, on one line."""
        self._print(command, what, "dim", whole=True)

    def _print(self, text: str, label: str = "", style: str = "", *, whole: bool = False) -> None:
        self._clock.reset()
        say(self._console, text, label, style, whole=whole)


class QuietReporter(Reporter):
    """A reporter that prints only notes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_time = Seldom()

    def close(self) -> None:
        """Do nothing, since this reporter draws nothing on the terminal."""

    def note(self, text: str) -> None:
        say(self._console, text, "note:")

    def waiting(self, text: str) -> None:
        if self._is_time():
            self.note(text)
