"""``resumerge status`` for a terminal: one run with plots and tables, or a few lines per run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from resumerge.documents.history import attempt_seconds, history_of
from resumerge.printable import printable
from resumerge.sizes import counted, show_seconds, show_size
from resumerge.ui.terminal.plot import OUTCOME_STYLES, Plot
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.terminal.search import show_search
from resumerge.ui.text.accounts import account_lines
from resumerge.ui.text.commands import command_of, resume_search_command
from resumerge.ui.text.format import (
    committed_share,
    format_cluster,
    format_event,
    format_mirror,
    format_time,
    is_output_in_bucket,
    state_word,
)
from resumerge.ui.text.narrative import narrative_of, state_sentence
from resumerge.ui.text.numbers import model_lines, whole_line
from resumerge.ui.text.search import show_batches

EVENTS_SHOWN = 8
ATTEMPTS_SHOWN = 12
COLUMNS_FOR_PROCESSES, COLUMNS_FOR_TABLE = 100, 66
"""The least columns of a terminal to show process ids and hosts of attempts, and to use a table."""

STATE_STYLES = {"done": "green", "running": "cyan", "interrupted": "yellow", "failed": "red"}

Run = Mapping[str, Any]


def show_status(document: Mapping[str, Any]) -> RenderableType:
    """Return the document of ``status --json``: a single run or search in full, or all in brief."""
    runs, searches = document["runs"], document["searches"]
    if len(runs) == 1 and not searches:
        return show_run(runs[0])
    if not runs and len(searches) == 1 and "trials" in searches[0]:
        return Group(*_search_lines(searches[0]), show_search(searches[0]))
    return Group(show_runs(runs), *(line for search in searches for line in _search_lines(search)))


def _search_lines(search: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield lines about a search, without its trials; for an unreadable search, the reason."""
    yield Text.assemble(
        (f"{printable(search['id']):<30} ", "bold"),
        (f"{search['state']:<11} ", STATE_STYLES[search["state"]]),
        "search",
    )
    if search["problem"]:
        yield Prose(printable(search["problem"]), "  ")
        return
    counts, state = search["counts"], search["state"]
    finished_count = counts["complete"] + counts["failed"]
    fact_texts = [
        f"  {finished_count} of {counted(counts['total'], 'trial')}",
        f"{counts['failed']} failed" if counts["failed"] else "",
        show_batches(search),
        f"created {format_time(search['created'])[:16]}",
    ]
    if search["best_trial"] is not None:
        metric_name = search["objectives"][0]["metric"]
        best_text = (
            f"best {metric_name} {search['best_value']:.6g}"
            if metric_name
            else (f"best {search['best_value']:.6g}")
        )
        fact_texts.insert(2, f"{best_text} in trial {search['best_trial']}")
    yield Prose(printable(", ".join(filter(None, fact_texts))))
    yield Prose(f"  {printable(search['output'])}", style="dim")
    if state == "interrupted":
        yield Prose(resume_search_command(search), "  resume  ", "dim", whole=True)


def show_run(run: Run) -> RenderableType:
    """Return one run: progress, plots, narrative, accounts, attempts, events, resume command."""
    history = history_of(run)
    parts = [*_head(run), "", Plot(history)]
    if lines := narrative_of(run, history):
        parts += ["", Text("what happened", "bold"), *map(_item, lines)]
    if lines := list(account_lines(run["accounts"])):
        parts += ["", Text("tensors of the models", "bold"), *map(_item, lines)]
    if lines := list(filter(None, (whole_line(run["accounts"]), *model_lines(run["accounts"])))):
        parts += ["", Text("what happened to the numbers", "bold"), *map(_item, lines)]
    if lines := run["accounts"]["warnings"]:
        parts += ["", Text("warnings about the numbers", "bold"), *map(_item, lines)]
    if run["attempts"]:
        parts += ["", Text("attempts", "bold"), _Attempts(run["attempts"])]
    if run["events"]:
        parts += ["", Text("last events", "bold"), *_events(run["events"])]
    if lines := format_cluster(run):
        parts += ["", Text("cluster", "bold"), *map(_item, lines)]
    parts.append("")
    if mirror := format_mirror(run):
        label = "bucket  " if is_output_in_bucket(run) else "mirror  "
        parts.append(Prose(printable(mirror), label, "dim"))
    if run["ledger"] and (run["mirror"] is None or run["mirror"]["here"]):
        parts.append(Prose(printable(run["ledger"]), "ledger  ", "dim"))
    if run["state"] == "interrupted":
        parts.append(Prose(command_of(run), "resume  ", "dim", whole=True))
    return Group(*parts)


def show_live(run: Run, rows: int) -> RenderableType:
    """Return one run for ``--watch``, with plots that fit into `rows` rows of the terminal."""
    history = history_of(run)
    heights = next(plot_heights for least_rows, plot_heights in _HEIGHTS if rows >= least_rows)
    lines = narrative_of(run, history)[-3:] if rows >= 24 else []
    return Group(*_head(run), "", Plot(history, heights), *map(_item, lines))


_HEIGHTS = [(44, (12, 6, 6)), (34, (8, 5, 5)), (28, (6, 3, 3)), (22, (4, 2, 2)), (0, (2, 1, 1))]
"""(least rows of a terminal, heights of the panels), highest first."""


def show_runs(runs: Sequence[Run]) -> RenderableType:
    """Return all runs in the given order, with three lines for each."""
    parts: list[RenderableType] = []
    for run in runs:
        total_bytes, committed_bytes = run["bytes"]["total"], run["bytes"]["committed"]
        attempt_count = len(run["attempts"])
        last_outcome = run["attempts"][-1]["outcome"] if attempt_count else None
        peak_rss, creation_time = run["memory"]["peak_rss"], run["created"]
        fact_texts = [
            f"  {show_size(committed_bytes)} of {show_size(total_bytes)}",
            "its output was deleted" if run["output_deleted"] else "",
            counted(attempt_count, "attempt"),
            f"last one {last_outcome}" if last_outcome and last_outcome != "done" else "",
            f"peak {show_size(peak_rss)}" if peak_rss else "",
            f"created {format_time(creation_time)[:16]}" if creation_time else "",
        ]
        parts += [
            Text.assemble(
                (f"{printable(run['id']):<30} ", "bold"),
                (f"{state_word(run):<11} ", STATE_STYLES.get(state_word(run), "")),
                f"{committed_share(run):>4.0%}",
            ),
            Prose(", ".join(filter(None, fact_texts))),
            Prose(f"  {printable(run['output'] or '')}", style="dim"),
        ]
    return Group(*parts)


def _head(run: Run) -> list[RenderableType]:
    total_bytes, committed_bytes = run["bytes"]["total"], run["bytes"]["committed"]
    units, shards = run["units"], run["shards"]
    copies_text = f" ({shards['copied']} are copies of files)" if shards["copied"] else ""
    progress_line = Table.grid(padding=(0, 1), expand=False)
    progress_line.add_row(
        ProgressBar(max(total_bytes, 1), committed_bytes, width=30), f"{committed_share(run):.0%}"
    )
    state = state_sentence(run)
    if run["state"] == "running" and run["rate_bytes_per_s"]:
        state += f" {show_size(run['rate_bytes_per_s'])}/s."
    return [
        Text.assemble(
            (printable(run["id"]), "bold"),
            "  ",
            (state_word(run), STATE_STYLES.get(state_word(run), "")),
        ),
        Prose(printable(run["output"] or "")),
        progress_line,
        Prose(
            f"{show_size(committed_bytes)} of {show_size(total_bytes)}, "
            f"{units['committed']} of {counted(units['total'], 'tensor')}, "
            f"{shards['sealed']} of {counted(shards['total'], 'shard')} sealed{copies_text}. "
            f"{state}"
        ),
    ]


def _item(text: str) -> RenderableType:
    return Prose(printable(text), "  -", "dim", indent=4)


class _Attempts:
    """The attempts as a table, with more columns on a wide console; as lines on a narrow one."""

    def __init__(self, attempts: Sequence[Run]) -> None:
        self._attempts = attempts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < COLUMNS_FOR_TABLE:
            yield from map(_attempt, self._attempts[-ATTEMPTS_SHOWN:])
            return
        shows_processes = options.max_width >= COLUMNS_FOR_PROCESSES
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("n", justify="right")
        for name in (
            *(("pid", "host") if shows_processes else ()),
            "started (UTC)",
            "took",
            "ended",
        ):
            table.add_column(name)
        for name in ("tensors", "peak", "budget"):
            table.add_column(name, justify="right", no_wrap=True)
        for attempt in self._attempts[-ATTEMPTS_SHOWN:]:
            outcome = attempt["outcome"] or "running"
            start_text = format_time(attempt["started"])
            table.add_row(
                str(attempt["n"]),
                *(
                    (str(attempt["pid"]), Text(printable(attempt["host"] or "")))
                    if shows_processes
                    else ()
                ),
                start_text if shows_processes else start_text[5:16],
                show_seconds(attempt_seconds(attempt)),
                Text(outcome, OUTCOME_STYLES.get(outcome, "")),
                str(attempt["units_committed"]),
                show_size(attempt["peak_rss"]) if attempt["peak_rss"] else "",
                show_size(attempt["budget"]) if attempt["budget"] else "",
            )
        yield table
        if (hidden_count := len(self._attempts) - ATTEMPTS_SHOWN) > 0:
            yield Text(f"and {hidden_count} earlier", "dim")


def _attempt(a: Run) -> RenderableType:
    """Return an attempt as lines, for a console that is too narrow for a table."""
    fact_texts = [
        f"{format_time(a['started'])[5:16]} UTC",
        show_seconds(attempt_seconds(a)),
        f"{counted(a['units_committed'], 'tensor')}",
        f"peak {show_size(a['peak_rss'])}" if a["peak_rss"] else "",
        f"budget {show_size(a['budget'])}" if a["budget"] else "",
    ]
    outcome = a["outcome"] or "running"
    label = f"{a['n']} {printable(outcome)}:"
    return Prose(", ".join(filter(None, fact_texts)), label, OUTCOME_STYLES.get(outcome, ""))


def _events(events: Sequence[Run]) -> Iterator[RenderableType]:
    for event in events[-EVENTS_SHOWN:]:
        kind, data_text = printable(event["kind"].replace("_", " ")), format_event(event)
        text = f"{kind}: {data_text}" if data_text else kind
        yield Prose(text, format_time(event["at"])[11:], "dim", indent=9)
