"""A search as HTML: a self-contained page, or a fragment for another page.

The charts are SVG that is made here: points and a line need 60 lines of code, and no library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from resumerge.ui.html.environment import render, render_page
from resumerge.ui.text.search import show_batches, show_number, show_value

START = "<!doctype html><!-- resumerge search -->"
"""The first line of a page. A file that begins with it may be replaced by a new page."""

SIZE = 100
"""The width and the height of a drawing, in units of its own; a page scales it."""

MARGIN = 4
"""The distance between the outermost points and the edge, in units of a drawing."""

Document = Mapping[str, Any]


@dataclass(frozen=True)
class TrialPoint:
    """The point of a trial in a drawing, and its tooltip."""

    x: float
    y: float
    label: str
    is_best: bool


@dataclass(frozen=True)
class Drawing:
    """A chart: points, a line, and the labels at the ends of the axes.

    Args:
        line: SVG path data; empty for a chart without a line.
        below: the labels at the left and right end of the horizontal axis.
        beside: the labels at the top and bottom end of the vertical axis.
    """

    title: str
    note: str
    points: Sequence[TrialPoint]
    line: str
    below: tuple[str, str]
    beside: tuple[str, str]


def search_page(document: Document) -> str:
    """Return a complete page for one of the searches of ``resumerge status --json``."""
    return render_page("search_page.html.j2", START, **_context(document))


def search_fragment(document: Document) -> str:
    """Return a fragment of HTML, for another page, from the document of a search."""
    return render("search.html.j2", **_context(document))


def _context(document: Document) -> dict[str, Any]:
    trials = document.get("trials", [])
    rows = [
        {
            "number": row["number"],
            "shown": [*map(show_number, row["values"] or [])] or [row["error"] or row["state"]],
            "given": [
                show_value(row["parameters"].get(name, "")) for name in document["parameters"]
            ],
            "seconds": sum((row["seconds"] or {}).values()),
            "is_best": row["number"] in document["best"],
        }
        for row in trials
    ]
    best_row = next((row for row in trials if row["number"] in document["best"]), None)
    return {
        "search": document,
        "batches": show_batches(document),
        "importances": document.get("importances", {}),
        "recipe": _text(document.get("best_recipe")),
        "rows": rows,
        "drawings": drawings(document) if trials else [],
        "value": show_number(best_row["values"][0]) if best_row else None,
        "number": best_row["number"] if best_row else None,
    }


def _text(path: str | None) -> str:
    """Return the text of the best recipe; empty if its file cannot be read."""
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace") if path else ""
    return ""


def drawings(document: Document) -> list[Drawing]:
    """Return a chart of the history of each objective, and of the Pareto front of two objectives.

    Args:
        document: the document of ``search --json``. Trials without values are left out.
    """
    rows = [row for row in document["trials"] if row["values"]]
    if not rows:
        return []
    charts = [_history(document, rows, index) for index in range(len(document["objectives"]))]
    if len(document["objectives"]) == 2:
        charts.append(_front(document, rows))
    return charts


def _history(document: Document, rows: Sequence[Document], index: int) -> Drawing:
    objective = document["objectives"][index]
    numbers, values = [row["number"] for row in rows], [row["values"][index] for row in rows]
    better_of: Callable[[float, float], float]
    better_of = max if objective["direction"] == "maximize" else min
    xs, ys = _scaled(numbers), _scaled(values)
    best_so_far = _scaled(values, [*accumulate(values, better_of)])
    line = "".join(f"{'H' if i else 'M'}{x:.2f}" + (f"V{SIZE - y:.2f}" if i else f" {SIZE - y:.2f}")
                   for i, (x, y) in enumerate(zip(xs, best_so_far)))  # fmt: skip
    return Drawing(
        objective["metric"] or "value",
        f"of each trial, {objective['direction']}d; line: the best until then",
        _points(document, rows, xs, ys),
        line,
        (f"trial {numbers[0]}", f"trial {numbers[-1]}"),
        (show_number(max(values)), show_number(min(values))),
    )


def _front(document: Document, rows: Sequence[Document]) -> Drawing:
    first_values, second_values = ([row["values"][index] for row in rows] for index in (0, 1))
    names = [objective["metric"] or "value" for objective in document["objectives"]]
    return Drawing(
        "Pareto front",
        f"across: {names[0]}; up: {names[1]}; marked: no trial is better in both",
        _points(document, rows, _scaled(first_values), _scaled(second_values)),
        "",
        (show_number(min(first_values)), show_number(max(first_values))),
        (show_number(max(second_values)), show_number(min(second_values))),
    )


def _points(
    document: Document, rows: Sequence[Document], xs: Sequence[float], ys: Sequence[float]
) -> list[TrialPoint]:
    return [
        TrialPoint(
            x,
            SIZE - y,
            f"trial {row['number']}: {', '.join(map(show_number, row['values']))}",
            row["number"] in document["best"],
        )
        for row, x, y in zip(rows, xs, ys)
    ]


def _scaled(values: Sequence[float], shown: Sequence[float] | None = None) -> list[float]:
    """Return numbers as distances from the lower end of an axis.

    Args:
        values: the numbers that the axis has to contain.
        shown: the numbers to convert; by default `values`.
    """
    low, high = min(values), max(values)
    span = SIZE - 2 * MARGIN
    return [
        MARGIN + (span * (value - low) / (high - low) if high > low else span / 2)
        for value in shown or values
    ]
