"""What a ledger says of its run: the document of ``resumerge status --json``."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from resumerge.engine.resources.lock import lock_holder
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.report.mirror_status import mirror_of, status_of_mirror


class Status(dict[str, Any]):
    """The document of ``status --json``, which a rich console and a notebook show as a picture.

    The plots are read from the ledgers when they are shown.
    """

    def __rich__(self) -> RenderableType:
        from resumerge.ui.terminal.status import show_status

        return show_status(self["runs"])

    def _repr_html_(self) -> str:
        from resumerge.ui.html.report import fragment

        return fragment(self["runs"])


def status_json(home: RunStore, wanted: str | None) -> Status:
    """The run that is named, or every run, newest first.

    Raises:
        InputError: there is no such run.
        Resumable: what is named is a mirror, and cannot be read now.
    """
    if wanted is not None:
        from resumerge.mirror.stores.registry import is_mirror_url

        if is_mirror_url(wanted):
            return Status(runs=[status_of_mirror(wanted)])
    folders = [home.find(wanted)] if wanted is not None else list(reversed(home.runs()))
    return Status(runs=[_run(folder) for folder in folders])


def status_of(folder: Path) -> Status:
    """The run whose ledger is in a folder."""
    return Status(runs=[_run(folder)])


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
        "events": [{"at": "", "attempt": None, "kind": "ledger_damaged", "data": {"why": why}}],
        "mirror": None,
    }


def _described(folder: Path, name: str) -> dict[str, Any]:
    ledger = Ledger(folder / name, read_only=True)
    try:
        return describe(ledger, folder)
    finally:
        ledger.close()


def describe(ledger: Ledger, folder: Path, *, alive: bool | None = None) -> dict[str, Any]:
    """One run, as in the contract of the command line.

    Args:
        alive: whether it is worked on, where that is not for this machine's locks to say.
    """
    run = ledger.run() or {}
    totals = ledger.totals()
    attempts = ledger.attempts()
    last = attempts[-1] if attempts else {}
    now = _last_sample(ledger, last.get("n"))
    alive = lock_holder(folder) is not None if alive is None else alive
    rate = _rate(last)
    left = totals.nbytes - totals.nbytes_committed
    return {
        "id": run.get("id"),
        "state": _state(run.get("state"), alive, bool(attempts)),
        "config": run.get("config_path"),
        "output": run.get("output"),
        "ledger": str(ledger.path),
        "created": run.get("created"),
        "units": {"total": totals.units, "committed": totals.units_committed},
        "bytes": {"total": totals.nbytes, "committed": totals.nbytes_committed},
        "shards": {"total": totals.shards, "sealed": totals.shards_sealed},
        "memory": {
            "budget": now.get("budget") or last.get("budget"),
            "peak_rss": max((a["peak_rss"] or 0 for a in attempts), default=0),
            "batch_bytes": now.get("batch_bytes") or last.get("batch_bytes"),
        },
        "rate_bytes_per_s": rate,
        "eta_s": round(left / rate, 1) if rate and alive else None,
        "merging_s": last.get("merging_seconds"),
        "attempts": [
            {
                "n": a["n"],
                "pid": a["pid"],
                "host": a["host"],
                "started": a["started"],
                "ended": a["ended"] or (None if alive and a is last else a["last_seen"]),
                "outcome": a["outcome"] or (None if alive and a is last else "killed"),
                "budget": a.get("budget"),
                "peak_rss": a["peak_rss"] or 0,
                "units_committed": a["units_committed"],
                "bytes_committed": a["bytes_committed"] or 0,
            }
            for a in attempts
        ],
        "mirror": mirror_of(ledger, run),
        "events": ledger.events(),
    }


def _last_sample(ledger: Ledger, attempt: int | None) -> dict[str, Any]:
    sample = ledger.last_sample()
    return sample if sample is not None and sample["attempt"] == attempt else {}


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
