"""Runs for a terminal: the one that is named as a picture, many a few lines each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from resumerge.printable import printable
from resumerge.report.format import plain_time, told_event
from resumerge.report.history import history_of, seconds_of
from resumerge.report.mirror_status import told_mirror
from resumerge.report.narrative import story, what_now
from resumerge.report.resume_command import command_of
from resumerge.report.sizes import counted, show_seconds, show_size
from resumerge.ui.terminal.plot import OUTCOME_STYLES, Plot

EVENTS_SHOWN = 8
ATTEMPTS_SHOWN = 12
ROOMY = 100
"""Columns from which there is room for what is only good to know."""

STATE_STYLES = {"done": "green", "running": "cyan", "interrupted": "yellow", "failed": "red"}

Run = Mapping[str, Any]


def show_status(runs: Sequence[Run]) -> RenderableType:
    """The picture of the only run, or all runs at a glance."""
    return show_run(runs[0]) if len(runs) == 1 else show_runs(runs)


def show_run(run: Run) -> RenderableType:
    """One run: progress, plots, what happened, attempts, events, and what resumes it."""
    history = history_of(run)
    parts = [*_head(run), "", Plot(history)]
    if lines := story(run, history):
        parts += ["", Text("what happened", "bold"), *map(_item, lines)]
    if run["attempts"]:
        parts += ["", Text("attempts", "bold"), _Attempts(run["attempts"])]
    if run["events"]:
        parts += ["", Text("last events", "bold"), _events(run["events"])]
    parts.append("")
    if told := told_mirror(run):
        parts.append(_line("mirror   ", told))
    if run["ledger"] and (run["mirror"] is None or run["mirror"]["here"]):
        parts.append(_line("ledger   ", run["ledger"]))
    if run["state"] == "interrupted":
        parts.append(_line("go on by ", command_of(run)))
    return Group(*parts)


def show_live(run: Run, rows: int) -> RenderableType:
    """One run that is being watched, in so many rows: plots as high as there is room for."""
    history = history_of(run)
    heights = next(h for least, h in _HEIGHTS if rows >= least)
    lines = story(run, history)[-3:] if rows >= 24 else []
    return Group(*_head(run), "", Plot(history, heights), *map(_item, lines))


_HEIGHTS = [(44, (12, 6, 6)), (34, (8, 5, 5)), (28, (6, 3, 3)), (22, (4, 2, 2)), (0, (2, 1, 1))]
"""Rows of a terminal from which the panels have these heights."""


def show_runs(runs: Sequence[Run]) -> RenderableType:
    """Every run, as many as there are, newest first."""
    parts: list[RenderableType] = []
    for run in runs:
        total, done = run["bytes"]["total"], run["bytes"]["committed"]
        attempts = len(run["attempts"])
        last = run["attempts"][-1]["outcome"] if attempts else None
        parts += [
            Text.assemble(
                (f"{printable(run['id']):<36} ", "bold"),
                (f"{run['state']:<11} ", STATE_STYLES.get(run["state"], "")),
                f"{done / total if total else 0:>4.0%}",
            ),
            Text.assemble(
                f"  {show_size(done)} of {show_size(total)}, {counted(attempts, 'attempt')}",
                f", last one {last}" if last and last != "done" else "",
                f", peak {show_size(run['memory']['peak_rss'])}"
                if run["memory"]["peak_rss"]
                else "",
                f", begun {plain_time(run['created'])[:16]}" if run["created"] else "",
            ),
            Text(f"  {printable(run['output'] or '')}", "dim"),
        ]
    return Group(*parts)


def _head(run: Run) -> list[RenderableType]:
    total, done = run["bytes"]["total"], run["bytes"]["committed"]
    units, shards = run["units"], run["shards"]
    bar = Table.grid(padding=(0, 1), expand=False)
    bar.add_row(ProgressBar(max(total, 1), done, width=30), f"{done / total if total else 0:.0%}")
    now = what_now(run)
    if run["state"] == "running" and run["rate_bytes_per_s"]:
        now += f" {show_size(run['rate_bytes_per_s'])}/s."
    return [
        Text.assemble(
            (printable(run["id"]), "bold"), "  ", (run["state"], STATE_STYLES.get(run["state"], ""))
        ),
        Text(printable(run["output"] or "")),
        bar,
        Text(
            f"{show_size(done)} of {show_size(total)}, "
            f"{units['committed']} of {counted(units['total'], 'tensor')}, "
            f"{shards['sealed']} of {counted(shards['total'], 'shard')} sealed. {now}"
        ),
    ]


def _item(text: str) -> RenderableType:
    return Padding(Text.assemble(("- ", "dim"), printable(text)), (0, 0, 0, 2))


def _line(label: str, text: str) -> Text:
    """A line to be copied, which is therefore not wrapped."""
    return Text.assemble((label, "dim"), printable(text), no_wrap=True, overflow="ignore")


class _Attempts:
    """The attempts, with as many facts as the console is wide."""

    def __init__(self, attempts: Sequence[Run]) -> None:
        self._attempts = attempts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        roomy = options.max_width >= ROOMY
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("n", justify="right")
        for name in (*(("pid", "host") if roomy else ()), "started (UTC)", "took", "ended"):
            table.add_column(name)
        for name in ("tensors", "peak", "budget"):
            table.add_column(name, justify="right", no_wrap=True)
        for a in self._attempts[-ATTEMPTS_SHOWN:]:
            outcome = a["outcome"] or "running"
            started = plain_time(a["started"])
            table.add_row(
                str(a["n"]),
                *((str(a["pid"]), Text(printable(a["host"] or ""))) if roomy else ()),
                started if roomy else started[5:16],
                _took(a),
                Text(outcome, OUTCOME_STYLES.get(outcome, "")),
                str(a["units_committed"]),
                show_size(a["peak_rss"]) if a["peak_rss"] else "",
                show_size(a["budget"]) if a["budget"] else "",
            )
        yield table
        if (before := len(self._attempts) - ATTEMPTS_SHOWN) > 0:
            yield Text(f"and {before} before", "dim")


def _took(attempt: Run) -> str:
    if not attempt["ended"]:
        return ""
    return show_seconds(max(0.0, seconds_of(attempt["ended"]) - seconds_of(attempt["started"])))


def _events(events: Sequence[Run]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for event in events[-EVENTS_SHOWN:]:
        kind = printable(event["kind"].replace("_", " "))
        what = told_event(event)
        table.add_row(plain_time(event["at"])[11:], Text(f"{kind}: {what}" if what else kind))
    return table
