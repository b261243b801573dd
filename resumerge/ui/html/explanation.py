"""The resolved parameters as HTML: a self-contained page, or a fragment for another page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.ui.html.environment import render, render_page
from resumerge.ui.text.explanation import columns, constants, heading, meanings, span, title

START = "<!doctype html><!-- resumerge explain -->"
"""The first line of a page. A file that begins with it may be replaced by a new page."""

Document = Mapping[str, Any]


def explanation_page(document: Document) -> str:
    """Return a complete page for a document of ``explain --json``."""
    return render_page("explanation_page.html.j2", START, **_context(document))


def explanation_fragment(document: Document) -> str:
    """Return a fragment of HTML, for another page, from a document of ``explain --json``."""
    return render("explanation.html.j2", **_context(document))


def _context(document: Document) -> dict[str, Any]:
    return {
        "stages": [
            (title(stage), [*map(_group, stage["groups"])], meanings(stage))
            for stage in document["stages"]
        ],
        "notes": document["notes"],
        "recipe": document["recipe"],
    }


def _group(group: Document) -> dict[str, Any]:
    value_columns = columns(group)
    widths = [max(1, len(row["layers"] or ())) for row in group["rows"]]
    first_columns = [sum(widths[:number]) for number in range(len(widths))]
    return {
        "heading": heading(group),
        "lines": constants(value_columns),
        "columns": [column for column in value_columns if not column.is_constant],
        "spans": [span(row["layers"]) for row in group["rows"]],
        "places": [*zip(first_columns, widths)],
        "width": sum(widths),
    }
