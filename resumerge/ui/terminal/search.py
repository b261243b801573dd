"""``resumerge search`` for a terminal: the trials, the best recipe, and parameters that matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.printable import printable
from resumerge.sizes import counted, show_seconds
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.text.search import show_number, show_value

MOST_TRIALS = 50
"""The number of latest trials that are shown, besides the best trials."""

Document = Mapping[str, Any]


def show_search(document: Document) -> RenderableType:
    """Return the document of ``search --json`` for a terminal."""
    return Group(*_parts(document))


def trial_line(row: Document, objectives: Sequence[str]) -> str:
    """Return a trial as a line: its values or its error, its parameters, and its seconds.

    Args:
        row: one of the ``trials`` of the document.
        objectives: the names of the objectives; empty for a command that prints one number.
    """
    if row["values"] is None:
        result = f"failed: {row['error']}"
    else:
        metric_names = objectives or [""]
        result = ", ".join(
            f"{name} {show_number(value)}".strip()
            for name, value in zip(metric_names, row["values"])
        )
    seconds = row["seconds"] or {}
    duration_texts = ", ".join(f"{step} {show_seconds(value)}" for step, value in seconds.items())
    parameters = ", ".join(
        f"{name}: {show_value(value)}" for name, value in row["parameters"].items()
    )
    return printable(f"{result}  ({parameters}; {duration_texts})")


def _parts(document: Document) -> Iterator[RenderableType]:
    trials, best_numbers = document["trials"], document["best"]
    yield _history(document)
    if len(trials) > MOST_TRIALS:
        yield Prose(f"The last {MOST_TRIALS} of {len(trials)} trials, and the best", style="dim")
    if failed_count := sum(row["state"] == "failed" for row in trials):
        yield Prose(
            f"{counted(failed_count, 'trial')} failed: each has evaluation.err in its folder"
        )
    if document["importances"]:
        shares = (f"{name} {share:.0%}" for name, share in document["importances"].items())
        yield Prose(printable(", ".join(shares)), "what mattered for the best results:", "dim")
    rows = {row["number"]: row for row in trials}
    if len(document["objectives"]) > 1:
        yield Prose(", ".join(map(str, best_numbers)) or "none", "Pareto front (trials):", "bold")
    elif best_numbers:
        [number] = best_numbers
        value = show_number(rows[number]["values"][0])
        yield Prose(printable(f"trial {number}, {value}"), "best:", "bold green")
        yield Text(printable_lines(Path(document["best_recipe"]).read_text(encoding="utf-8")))
        yield Prose(printable(document["best_recipe"]), "recipe:", "dim")
    for row in trials:
        if row["model"]:
            yield Prose(printable(row["model"]), f"model of trial {row['number']}:", "dim")


def printable_lines(text: str) -> str:
    """Return a text of several lines, indented, with control characters escaped."""
    return "\n".join("  " + printable(line) for line in text.splitlines())


def _history(document: Document) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("trial", justify="right")
    for objective in document["objectives"]:
        name = objective["metric"] or "value"
        table.add_column(f"{printable(name)} ({objective['direction']})", justify="right")
    for name in document["parameters"]:
        table.add_column(printable(name), justify="right", overflow="fold")
    table.add_column("seconds", justify="right")
    latest_trials = document["trials"][-MOST_TRIALS:]
    for row in document["trials"]:
        is_best = row["number"] in document["best"]
        if not (is_best or row in latest_trials):
            continue
        values = row["values"] or [None] * len(document["objectives"])
        value_cells = [
            show_number(value) if value is not None else row["state"] for value in values
        ]
        parameter_cells = [
            show_value(row["parameters"].get(name, "")) for name in document["parameters"]
        ]
        seconds = sum((row["seconds"] or {}).values())
        cells = (str(row["number"]), *value_cells, *parameter_cells, f"{seconds:.1f}")
        table.add_row(*map(printable, cells), style="bold" if is_best else "")
    return table
