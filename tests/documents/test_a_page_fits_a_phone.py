"""Promise: a page fits the width of a phone; its elements and style show this without a browser."""

from __future__ import annotations

import re
from pathlib import Path

from made_up_ledgers import make_ledger
from pages import Element, read_page

import resumerge
from resumerge.ui.html.page_file import write_report

STYLE = Path(resumerge.__file__).parent / "ui/html/templates/report.css"


def tables(element: Element, classes: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return, for each table, its classes and those of the elements around it."""
    found = []
    for child in element.children:
        here = (*classes, *child.attributes.get("class", "").split())
        found += [here] if child.name == "table" else tables(child, here)
    return found


def test_tables_scroll_and_rows_of_sentences_are_folded(tmp_path: Path) -> None:
    attempts = [{"n": 1, "started": 1, "ended": 2, "outcome": "oom"}]
    make_ledger(tmp_path / "state", attempts, (), [(1, "source_differs", {"reason": "x " * 200})])
    write_report(resumerge.status(state_dir=tmp_path / "state")["runs"][0], tmp_path / "run.html")
    found = tables(read_page((tmp_path / "run.html").read_text()))
    assert len(found) > 3 and all("table" in classes for classes in found)
    assert sum("wrap" in classes for classes in found) == 1, "the events"
    wide, _, narrow = STYLE.read_text().partition("@media (max-width: 560px)")
    assert re.search(r"\.table \{\s*overflow-x: auto", wide)
    assert re.search(r"\.wrap td:last-child \{ display: block", narrow)
    for long in ("h1", "code", "li", "footer"):
        assert re.search(rf"{long} \{{[^}}]*overflow-wrap: anywhere", wide)
