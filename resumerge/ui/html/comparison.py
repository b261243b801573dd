"""A comparison as HTML: a page that needs no other file, or a fragment within another page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.ui.html.environment import render, render_page
from resumerge.ui.text.comparison import CAUTION, labels

START = "<!doctype html><!-- resumerge compare -->"
"""The first line of a page. It tells whether a file may be replaced by a new page."""

Document = Mapping[str, Any]


def comparison_page(document: Document) -> str:
    """Return the whole page of a document of ``compare --json``."""
    return render_page("comparison_page.html.j2", START, **_context(document))


def comparison_fragment(document: Document) -> str:
    """Return the document as HTML that stands within another page."""
    return render("comparison.html.j2", **_context(document))


def _context(document: Document) -> dict[str, Any]:
    return {"found": document, "labels": labels(document), "caution": CAUTION}
