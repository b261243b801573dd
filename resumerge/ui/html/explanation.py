"""The resolved parameters as HTML: a page that needs no other file, or a fragment of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.ui.html.environment import render, render_page
from resumerge.ui.text.explanation import columns, constants, heading, meanings, span, title

START = "<!doctype html><!-- resumerge explain -->"
"""The first line of a page. It tells whether a file may be replaced by a new page."""

Document = Mapping[str, Any]


def explanation_page(document: Document) -> str:
    """Return the whole page of a document of ``explain --json``."""
    return render_page("explanation_page.html.j2", START, **_context(document))


def explanation_fragment(document: Document) -> str:
    """Return the document as HTML that stands within another page."""
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
    found = columns(group)
    widths = [max(1, len(row["layers"] or ())) for row in group["rows"]]
    starts = [sum(widths[:number]) for number in range(len(widths))]
    return {
        "heading": heading(group),
        "lines": constants(found),
        "columns": [column for column in found if not column.is_constant],
        "spans": [span(row["layers"]) for row in group["rows"]],
        "places": [*zip(starts, widths)],
        "width": sum(widths),
    }
