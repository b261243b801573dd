"""A comparison as HTML: a self-contained page, or a fragment for another page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.ui.html.environment import render, render_page
from resumerge.ui.text.comparison import CAUTION, labels

START = "<!doctype html><!-- resumerge compare -->"
"""The first line of a page. A file that begins with it may be replaced by a new page."""

Document = Mapping[str, Any]


def comparison_page(document: Document) -> str:
    """Return a complete page for a document of ``compare --json``."""
    return render_page("comparison_page.html.j2", START, **_context(document))


def comparison_fragment(document: Document) -> str:
    """Return a fragment of HTML, for another page, from a document of ``compare --json``."""
    return render("comparison.html.j2", **_context(document))


def _context(document: Document) -> dict[str, Any]:
    return {"found": document, "labels": labels(document), "caution": CAUTION}
