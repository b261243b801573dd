"""``resumerge status --html FILE``: a run as one page that needs nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import resumerge
from resumerge.ledger import Ledger, now
from resumerge.report.format import plain_time, told_event
from resumerge.report.history import History, history_of, seconds_of
from resumerge.report.mirror_status import told_mirror
from resumerge.report.narrative import story, what_now
from resumerge.report.resume_command import command_of
from resumerge.report.sizes import show_seconds, show_size
from resumerge.report.timeline import lay_out
from resumerge.ui.html.html import Html, join, tag
from resumerge.ui.html.parts import bar, outcome, section, style, table, tiles_of
from resumerge.ui.html.svg import history_chart, names_of_attempts
from resumerge.ui.html.timings import timings_section

COLUMNS = 480
"""Of the plots over time. Wider than most screens make of them, and still a small page."""

MOST_ROWS = 200
"""Of a table; the newest."""

START = "<!doctype html><!-- resumerge status -->"
"""A page's first line, by which it is known."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

Run = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def page(run: Run) -> str:
    """The whole document."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{run['id']}: {run['state']}"),
        style(),
    )
    return f"{START}\n{tag('html', head, tag('body', _run(run)), lang='en')}\n"


def fragment(runs: Sequence[Run]) -> str:
    """The only run as on its page, or a table of all, to stand within another page."""
    return join(style(), _run(runs[0]) if len(runs) == 1 else _all(runs))


def _all(runs: Sequence[Run]) -> Html:
    rows = (
        (
            tag("b", run["id"]),
            outcome(run["state"]),
            f"{_share(run):.0%}",
            f"{show_size(run['bytes']['committed'])} of {show_size(run['bytes']['total'])}",
            str(len(run["attempts"])),
            tag("code", run["output"] or ""),
        )
        for run in runs
    )
    rows_shown = table(("run", "state", "", "bytes", "attempts", "output"), rows)
    return tag("main", rows_shown, class_="resumerge")


def _run(run: Run) -> Html:
    history = history_of(run)
    facts = _facts(Path(run["ledger"] or ""))
    return tag(
        "main",
        _head(run),
        _story(run, history),
        _resume(run),
        _plots(history),
        _attempts(run["attempts"]),
        timings_section(facts["units"]),
        _events(run["events"]),
        _recipe(run, facts["run"]),
        _sources(facts["sources"]),
        _shards(facts["shards"]),
        tag(
            "footer",
            f"resumerge {resumerge.__version__}, {plain_time(now())}; times are in UTC. Ledger: ",
            tag("code", run["ledger"] or ""),
            *((" Mirror: ", tag("code", told)) if (told := told_mirror(run)) else ()),
        ),
        class_="resumerge",
    )


def _facts(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What the page shows of a ledger beyond its status; empty where it cannot be read."""
    try:
        with closing(Ledger(path, read_only=True)) as ledger:
            return {
                "run": [run] if (run := ledger.run()) else [],
                "sources": ledger.sources(),
                "shards": ledger.shards(),
                "units": [unit for unit in ledger.units() if (unit["seconds"] or 0) > 0],
            }
    except sqlite3.DatabaseError:
        return {"run": [], "sources": [], "shards": [], "units": []}


def _share(run: Run) -> float:
    total = run["bytes"]["total"]
    return run["bytes"]["committed"] / total if total else 0.0


def _head(run: Run) -> Html:
    units, shards, memory = run["units"], run["shards"], run["memory"]
    budget = f"budget {show_size(memory['budget'])}" if memory["budget"] else ""
    rate = run["rate_bytes_per_s"]
    tiles = (
        (
            "committed",
            show_size(run["bytes"]["committed"]),
            f"of {show_size(run['bytes']['total'])}",
        ),
        ("tensors", f"{units['committed']}", f"of {units['total']}"),
        ("shards sealed", f"{shards['sealed']}", f"of {shards['total']}"),
        ("peak memory", show_size(memory["peak_rss"]), budget),
        ("speed", f"{show_size(rate)}/s" if rate else "none yet", "of the last attempt"),
        ("attempts", str(len(run["attempts"])), _worked(run["attempts"])),
    )
    return tag(
        "header",
        tag("h1", run["id"], " ", outcome(run["state"])),
        tag("p", tag("code", run["output"] or ""), class_="muted"),
        bar(_share(run)),
        tag("p", f"{_share(run):.0%} committed. {what_now(run)}"),
        tiles_of(tiles),
    )


def _worked(attempts: Sequence[Run]) -> str:
    seconds = sum(_seconds(attempt) or 0.0 for attempt in attempts)
    return f"{show_seconds(seconds)} of work" if seconds else ""


def _seconds(attempt: Run) -> float | None:
    if not attempt["ended"]:
        return None
    return max(0.0, seconds_of(attempt["ended"]) - seconds_of(attempt["started"]))


def _story(run: Run, history: History) -> Html | None:
    lines = story(run, history)
    return section("What happened", tag("ul", *(tag("li", x) for x in lines))) if lines else None


def _resume(run: Run) -> Html | None:
    if run["state"] != "interrupted":
        return None
    command = command_of(run)
    return section("What resumes it", tag("pre", command))


def _plots(history: History) -> Html | None:
    if not history.points:
        return None
    timeline = lay_out(history, COLUMNS)
    last, peak = history.points[-1], max(point.rss_high for point in history.points)
    budget = max(point.budget for point in history.points)
    far = ", far above the picture" if budget > 4 * peak else ""
    worked = sum(life.seconds for life in history.lifetimes) or 1.0
    left_out = f"The first {timeline.left_out} attempts are left out. "
    return section(
        "Over time",
        history_chart(
            "Memory",
            f"peak {show_size(peak)}; dashed: budget, {show_size(last.budget)} at the end{far}",
            timeline,
            show_size,
            lambda cell: cell.rss_high,
            low=lambda cell: cell.rss_low,
            limit=lambda cell: cell.budget,
            kind="memory",
        ),
        history_chart(
            "Batch size",
            f"what may be computed and not committed; {show_size(last.batch_high)} at the end",
            timeline,
            show_size,
            lambda cell: cell.batch_high,
            kind="batch",
            steps=True,
        ),
        history_chart(
            "Throughput",
            f"output committed, mean {show_size(last.done / worked)}/s",
            timeline,
            lambda rate: f"{show_size(rate)}/s",
            lambda cell: cell.rate,
            kind="throughput",
            steps=True,
        ),
        names_of_attempts(timeline),
        tag(
            "p",
            left_out if timeline.left_out else "",
            "Only working time takes room: a break is whatever time lay between two attempts.",
            class_="muted",
        )
        if len(history.lifetimes) > 1
        else None,
    )


def _attempts(attempts: Sequence[Run]) -> Html | None:
    if not attempts:
        return None
    rows = (
        (
            str(a["n"]),
            plain_time(a["started"]),
            "" if (seconds := _seconds(a)) is None else show_seconds(seconds),
            outcome(a["outcome"] or "running"),
            str(a["units_committed"]),
            show_size(a["bytes_committed"]),
            show_size(a["peak_rss"]) if a["peak_rss"] else "",
            show_size(a["budget"]) if a["budget"] else "",
            f"{a['pid']} on {a['host']}",
        )
        for a in attempts[-MOST_ROWS:]
    )
    names = ("", "started", "took", "ended", "tensors", "committed", "peak", "budget", "process")
    return section("Attempts", table(names, rows), _more(attempts))


def _events(events: Rows) -> Html | None:
    if not events:
        return None
    rows = (
        (
            plain_time(event["at"]),
            "" if event["attempt"] is None else str(event["attempt"]),
            event["kind"].replace("_", " "),
            told_event(event),
        )
        for event in reversed(events[-MOST_ROWS:])
    )
    rows_shown = table(("at", "attempt", "what", ""), rows)
    return section(f"Events ({len(events)})", _folded(rows_shown, len(events)), _more(events))


def _recipe(run: Run, rows: Rows) -> Html | None:
    if not rows:
        return None
    file = tag("p", tag("code", run["config"]), class_="muted")
    return section("Recipe", file, tag("pre", rows[0]["config_text"]))


def _sources(sources: Rows) -> Html | None:
    rows = (
        (
            str(source["number"]),
            tag("code", source["model"]),
            source["kind"],
            tag("code", (source["revision"] or "")[:12]),
            tag("code", source["folder"] or ""),
        )
        for source in sources
    )
    names = ("", "model", "kind", "revision", "folder")
    return section("Sources", table(names, rows)) if sources else None


def _shards(shards: Rows) -> Html | None:
    rows = (
        (
            tag("code", shard["name"]),
            show_size(shard["nbytes"]),
            outcome("done" if shard["state"] == "sealed" else "planned", shard["state"]),
            plain_time(shard["sealed_at"]),
        )
        for shard in shards[-MOST_ROWS:]
    )
    if not shards:
        return None
    rows_shown = table(("shard", "size", "state", "sealed"), rows)
    return section(f"Shards ({len(shards)})", _folded(rows_shown, len(shards)), _more(shards))


def _folded(table: Html, rows: int) -> Html:
    """A long table behind a line to click on."""
    if rows <= 12:
        return table
    return tag("details", tag("summary", f"Show {min(rows, MOST_ROWS)} rows"), table)


def _more(rows: Sequence[object]) -> Html | None:
    left = len(rows) - MOST_ROWS
    return tag("p", f"And {left} more in the ledger.", class_="muted") if left > 0 else None
