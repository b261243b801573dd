"""A run as HTML: a self-contained page, or a fragment for another page."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import resumerge
from resumerge.documents.history import attempt_seconds, history_of
from resumerge.documents.panels import panels_of
from resumerge.documents.timeline import lay_out
from resumerge.engine.changes import changes_of
from resumerge.ledger import Ledger, now
from resumerge.ui.html.charts import history_chart, timing_charts
from resumerge.ui.html.environment import render
from resumerge.ui.html.strips import strips_of
from resumerge.ui.text.commands import command_of
from resumerge.ui.text.format import format_mirror, is_output_in_bucket
from resumerge.ui.text.narrative import narrative_of, state_sentence

COLUMNS = 480
"""The columns of the plots over time: more than most screens can show, for a small file."""

MOST_ROWS = 200
"""The most rows of a table. The newest rows are shown."""

START = "<!doctype html><!-- resumerge status -->"
"""The first line of a page. A file that begins with it may be replaced by a new page."""

Run = Mapping[str, Any]


def page(run: Run) -> str:
    """Return a complete page for one of the runs of ``resumerge status --json``."""
    return f"{START}\n{render('page.html.j2', **_context(run))}\n"


def fragment(runs: Sequence[Run]) -> str:
    """Return a fragment of HTML: a single run as on its page, or a table of all runs."""
    if len(runs) == 1:
        return render("status.html.j2", **_context(runs[0]))
    return render("status.html.j2", run=None, runs=runs)


def _context(run: Run) -> dict[str, Any]:
    """Return the values of ``run.html.j2``."""
    history = history_of(run)
    timeline = lay_out(history, COLUMNS)
    return {
        "run": run,
        "state": state_sentence(run),
        "worked": sum(map(attempt_seconds, run["attempts"])),
        # For a cluster, only the history has the peak of the tasks.
        "peak": run["memory"]["peak_rss"] or history.peak,
        "narrative": narrative_of(run, history),
        "command": command_of(run) if run["state"] == "interrupted" else None,
        "charts": [history_chart(panel, timeline) for panel in panels_of(history)],
        "timeline": timeline,
        "most_rows": MOST_ROWS,
        "mirror": format_mirror(run),
        "in_bucket": is_output_in_bucket(run),
        "version": resumerge.__version__,
        "now": now(),
        **_tables(run["ledger"]),
    }


def _tables(path: str | None) -> dict[str, Any]:
    """Return the parts of a page that need the ledger; empty parts if it cannot be read."""
    try:
        with closing(Ledger(Path(path or ""), read_only=True)) as ledger:
            return {
                "recipe": ledger.run()["config_text"],
                "sources": ledger.sources(),
                "shards": ledger.shards.all(),
                "strips": strips_of(changes_of(ledger)),
                "timings": timing_charts(unit for unit in ledger.units.all() if unit["seconds"]),
            }
    except sqlite3.DatabaseError:
        return {"recipe": None, "sources": (), "shards": (), "strips": None, "timings": None}
