"""What a ledger says of its run, as the JSON of ``resumerge status`` and for people."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from resumerge.engine.lock import lock_holder
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.ledger.home import Home
from resumerge.ui.sizes import show_seconds, show_size

EVENTS_SHOWN = 8


def status_json(home: Home, wanted: str | None) -> dict[str, Any]:
    """The document of ``status --json``: the run that is named, or every run, newest first."""
    folders = [home.find(wanted)] if wanted is not None else list(reversed(home.runs()))
    return {"runs": [_run(folder) for folder in folders]}


def _run(folder: Path) -> dict[str, Any]:
    try:
        return _described(folder, LEDGER_FILE)
    except sqlite3.DatabaseError:
        pass
    try:
        return _described(folder, SNAPSHOT_FILE)
    except sqlite3.DatabaseError as error:
        return _unreadable(folder, str(error))


def _unreadable(folder: Path, why: str) -> dict[str, Any]:
    """A run whose ledger and snapshot are both beyond use."""
    return {
        "id": folder.name,
        "state": "failed",
        "config": None,
        "output": None,
        "ledger": str(folder / LEDGER_FILE),
        "created": None,
        "units": {"total": 0, "committed": 0},
        "bytes": {"total": 0, "committed": 0},
        "shards": {"total": 0, "sealed": 0},
        "memory": {"budget": None, "peak_rss": 0, "batch_bytes": None},
        "rate_bytes_per_s": None,
        "eta_s": None,
        "merging_s": None,
        "attempts": [],
        "events": [{"at": "", "kind": "ledger_damaged", "data": {"why": why}}],
    }


def _described(folder: Path, name: str) -> dict[str, Any]:
    ledger = Ledger(folder / name, read_only=True)
    try:
        return describe(ledger, folder)
    finally:
        ledger.close()


def describe(ledger: Ledger, folder: Path) -> dict[str, Any]:
    """One run, as in the contract of the command line."""
    run = ledger.run() or {}
    units = ledger.rows(
        "SELECT count(*) AS total, coalesce(sum(state = 'committed'), 0) AS committed,"
        " sum(nbytes) AS nbytes FROM units"
    )[0]
    committed = ledger.rows(
        "SELECT coalesce(sum(CASE WHEN state = 'committed' THEN nbytes"
        " ELSE nbytes * committed_blocks / blocks END), 0) AS n FROM units"
    )[0]["n"]
    shards = ledger.rows(
        "SELECT count(*) AS total, coalesce(sum(state = 'sealed'), 0) AS sealed FROM shards"
    )[0]
    attempts = ledger.rows("SELECT * FROM attempts ORDER BY n")
    samples = ledger.rows("SELECT * FROM samples ORDER BY id DESC LIMIT 20")
    last = attempts[-1] if attempts else {}
    alive = lock_holder(folder) is not None
    rate = _rate(last)
    return {
        "id": run.get("id"),
        "state": _state(run.get("state"), alive, bool(attempts)),
        "config": run.get("config_path"),
        "output": run.get("output"),
        "ledger": str(ledger.path),
        "created": run.get("created"),
        "units": {"total": units["total"], "committed": units["committed"]},
        "bytes": {"total": units["nbytes"] or 0, "committed": committed},
        "shards": {"total": shards["total"], "sealed": shards["sealed"]},
        "memory": {
            "budget": samples[0]["budget"] if samples else None,
            "peak_rss": max((a["peak_rss"] or 0 for a in attempts), default=0),
            "batch_bytes": last.get("batch_bytes"),
        },
        "rate_bytes_per_s": rate,
        "eta_s": round(((units["nbytes"] or 0) - committed) / rate, 1) if rate and alive else None,
        "merging_s": last.get("merging_seconds"),
        "attempts": [
            {
                "n": a["n"],
                "pid": a["pid"],
                "host": a["host"],
                "started": a["started"],
                "ended": a["ended"] or (None if alive and a is last else a["last_seen"]),
                "outcome": a["outcome"] or (None if alive and a is last else "killed"),
                "peak_rss": a["peak_rss"] or 0,
                "units_committed": a["units_committed"],
                "bytes_committed": a["bytes_committed"] or 0,
            }
            for a in attempts
        ],
        "events": [
            {"at": e["at"], "kind": e["kind"], "data": json.loads(e["data"])}
            for e in ledger.rows("SELECT at, kind, data FROM events ORDER BY id")
        ],
    }


def _state(state: str | None, alive: bool, attempted: bool) -> str:
    if state in ("done", "failed") and not alive:
        return state
    if alive:
        return "running"
    return "interrupted" if attempted else "planned"


def _rate(attempt: dict[str, Any]) -> float | None:
    """Output bytes a second over the attempt so far."""
    if not attempt or not attempt["bytes_committed"]:
        return None
    started = datetime.fromisoformat(attempt["started"])
    seen = datetime.fromisoformat(attempt["last_seen"])
    seconds = (seen - started).total_seconds()
    return round(attempt["bytes_committed"] / seconds, 1) if seconds > 0 else None


def show_run(run: dict[str, Any]) -> RenderableType:
    """One run, for a terminal."""
    total, done = run["bytes"]["total"], run["bytes"]["committed"]
    head = Text.assemble(
        (run["id"], "bold"),
        "  ",
        (run["state"], _COLORS.get(run["state"], "")),
        "  ",
        run["output"],
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_row("progress", ProgressBar(max(total, 1), done, width=40))
    facts.add_row("units", f"{run['units']['committed']} of {run['units']['total']} committed")
    facts.add_row("bytes", f"{show_size(done)} of {show_size(total)}")
    facts.add_row("shards", f"{run['shards']['sealed']} of {run['shards']['total']} sealed")
    if run["memory"]["peak_rss"]:
        budget = run["memory"]["budget"]
        facts.add_row(
            "memory",
            f"peak {show_size(run['memory']['peak_rss'])}"
            + (f" of a budget of {show_size(budget)}" if budget else ""),
        )
    if run["rate_bytes_per_s"]:
        eta = f", {show_seconds(run['eta_s'])} left" if run["eta_s"] is not None else ""
        facts.add_row("speed", f"{show_size(run['rate_bytes_per_s'])}/s{eta}")
    facts.add_row("ledger", run["ledger"])
    parts: list[RenderableType] = [head, facts]
    if run["attempts"]:
        parts += ["", _attempts(run["attempts"])]
    if run["events"]:
        parts += ["", _events(run["events"])]
    return Group(*parts)


_COLORS = {"done": "green", "running": "cyan", "interrupted": "yellow", "failed": "red"}


def _attempts(attempts: list[dict[str, Any]]) -> Table:
    table = Table(title="attempts", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("n", "pid", "started", "outcome", "units", "peak memory"):
        table.add_column(name)
    for a in attempts:
        table.add_row(
            str(a["n"]),
            str(a["pid"]),
            a["started"][:19].replace("T", " "),
            a["outcome"] or "running",
            str(a["units_committed"]),
            show_size(a["peak_rss"]) if a["peak_rss"] else "",
        )
    return table


def _events(events: list[dict[str, Any]]) -> Table:
    table = Table(title="last events", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("at", "kind", "what"):
        table.add_column(name)
    for e in events[-EVENTS_SHOWN:]:
        what = ", ".join(f"{key} {value}" for key, value in e["data"].items())
        table.add_row(e["at"][:19].replace("T", " "), e["kind"], what)
    return table


def show_runs(runs: list[dict[str, Any]]) -> RenderableType:
    """Every run, a line each."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("run", "state", "units", "bytes", "output"):
        table.add_column(name, overflow="fold", no_wrap=name == "run")
    for run in runs:
        table.add_row(
            run["id"],
            Text(run["state"], _COLORS.get(run["state"], "")),
            f"{run['units']['committed']}/{run['units']['total']}",
            f"{show_size(run['bytes']['committed'])} of {show_size(run['bytes']['total'])}",
            run["output"] or "",
        )
    return table
