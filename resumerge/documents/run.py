"""One run as a document: an entry of ``runs`` in ``resumerge status --json``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.documents.accounts import (
    NOT_MEASURED,
    describe_accounts,
    describe_changes,
    describe_outputs,
)
from resumerge.documents.accounts.adapter import describe_adapter
from resumerge.documents.cluster import describe_cluster, task_peaks
from resumerge.engine.changes import changes_of
from resumerge.engine.resources.lock import lock_holder
from resumerge.event_kinds import EventKind
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger, Row
from resumerge.ledger.run_store import output_as_named
from resumerge.output_path import OutputPath, is_weights

if TYPE_CHECKING:
    from resumerge.mirror.manifest import Manifest


def describe_run(folder: Path, *, every_tensor: bool = False) -> dict[str, Any]:
    """Return the document of the run in a folder.

    If the ledger is unreadable, the snapshot is read. If that is unreadable too, the run counts as
    failed, and its only event is the damage of the ledger.

    Args:
        folder: the run's folder in the state folder.
        every_tensor: whether the accounts list every tensor.
    """
    damage = ""
    for name in (LEDGER_FILE, SNAPSHOT_FILE):
        try:
            with closing(Ledger(folder / name, read_only=True)) as ledger:
                return describe_from_ledger(ledger, folder, every_tensor=every_tensor)
        except sqlite3.DatabaseError as error:
            damage = damage or str(error)
    return {
        **empty_run(folder.name, "failed"),
        "ledger": str(folder / LEDGER_FILE),
        "events": [
            {"at": "", "attempt": None, "kind": EventKind.LEDGER_DAMAGED, "data": {"why": damage}}
        ],
    }


def empty_run(name: str, state: str) -> dict[str, Any]:
    """Return the document of a run that has no data but its name and state."""
    return {
        "id": name,
        "state": state,
        "config": None,
        "output": None,
        "output_deleted": False,
        "ledger": None,
        "created": None,
        "units": {"total": 0, "committed": 0},
        "bytes": {"total": 0, "committed": 0},
        "shards": {"total": 0, "sealed": 0, "copied": 0},
        "memory": {"budget": None, "peak_rss": 0, "batch_bytes": None},
        "rate_bytes_per_s": None,
        "eta_s": None,
        "merging_s": None,
        "accounts": {"sources": [], **NOT_MEASURED},
        "extraction": None,
        "combination": None,
        "attempts": [],
        "events": [],
        "mirror": None,
        "cluster": None,
    }


def describe_finished(url: str, manifest: Manifest) -> dict[str, Any]:
    """Return the document of a finished run, from the manifest of its mirror.

    Args:
        url: the mirror's address.
        manifest: the content of the mirror's `done.json`; what it does not contain stays empty.
    """
    size_by_name = {name: size for name, (size, _) in manifest.files.items()}
    shard_sizes = [size for name, size in size_by_name.items() if is_weights(name)]
    count, output_bytes = len(shard_sizes), sum(shard_sizes)
    run = empty_run(manifest.run, "done")
    attempts = describe_attempts(manifest.attempts)
    return {
        **run,
        "output": url,
        "created": manifest.created,
        "units": {"total": manifest.units, "committed": manifest.units},
        "attempts": attempts,
        "memory": run["memory"]
        | {"peak_rss": max((attempt["peak_rss"] for attempt in attempts), default=0)},
        "bytes": {"total": output_bytes, "committed": output_bytes},
        "shards": run["shards"] | {"total": count, "sealed": count},
        "mirror": describe_mirror(url, shard_sizes, here=False),
    }


def describe_from_ledger(
    ledger: Ledger, folder: Path, *, alive: bool | None = None, every_tensor: bool = False
) -> dict[str, Any]:
    """Return the document of a run, from its open ledger.

    Args:
        ledger: the ledger, or a snapshot of it, open; the caller closes it.
        folder: the run's folder, with its lock.
        alive: whether a process works on the run; None to find out by the lock in `folder`.
        every_tensor: whether the accounts list every tensor.

    Raises:
        sqlite3.DatabaseError: the ledger is damaged.
    """
    run = ledger.run()
    totals, url = ledger.totals(), run.get("mirror")
    attempts = ledger.attempts.all()
    last_attempt = attempts[-1] if attempts else {}
    last_sample = _last_sample(ledger, last_attempt.get("n"))
    alive = lock_holder(folder) is not None if alive is None else alive
    rate = _rate(last_attempt)
    uncommitted_bytes = totals.nbytes - totals.nbytes_committed
    events = ledger.events.all()
    # On a cluster, tasks use the memory; the attempt's process journals.
    peak_by_attempt = task_peaks(events)
    changes = changes_of(ledger)
    adapter = describe_adapter(run, changes)
    attempts = [
        {**attempt, "peak_rss": peak_by_attempt.get(attempt["n"]) or attempt["peak_rss"]}
        for attempt in attempts
    ]
    state = _state(run.get("state"), alive, bool(attempts))
    return {
        **empty_run(run["id"], state),
        "config": run.get("config_path"),
        "output": run.get("output") and output_as_named(run["output"], url),
        "output_deleted": not alive and _is_deleted(ledger, run),
        "ledger": str(ledger.path),
        "created": run.get("created"),
        "units": {"total": totals.units, "committed": totals.units_committed},
        "bytes": {"total": totals.nbytes, "committed": totals.nbytes_committed},
        "shards": {
            "total": totals.shards,
            "sealed": totals.shards_sealed,
            "copied": totals.shards_copied,
        },
        "memory": {
            "budget": last_sample.get("budget") or last_attempt.get("budget"),
            "peak_rss": max((attempt["peak_rss"] or 0 for attempt in attempts), default=0),
            "batch_bytes": last_sample.get("batch_bytes") or last_attempt.get("batch_bytes"),
        },
        "rate_bytes_per_s": rate,
        "eta_s": round(uncommitted_bytes / rate, 1) if rate and alive else None,
        "merging_s": last_attempt.get("merging_seconds"),
        "accounts": {
            **_accounts(ledger, every_tensor=every_tensor),
            **describe_changes([] if any(adapter.values()) else changes, every=every_tensor),
        },
        **adapter,
        "attempts": describe_attempts(attempts, alive=alive),
        "mirror": _mirror(ledger, url, run.get("state") == "done"),
        "cluster": describe_cluster(events),
        "events": events,
    }


def _accounts(ledger: Ledger, *, every_tensor: bool) -> dict[str, Any]:
    document = describe_accounts(ledger.accounts(), every=every_tensor)
    if every_tensor:
        models = [source["model"] for source in ledger.sources()]
        document["outputs"] = describe_outputs(ledger.units.all(), models)
    return document


def _is_deleted(ledger: Ledger, run: Row) -> bool:
    """Return whether a run is done, and its files exist neither in the output nor in a mirror."""
    if run.get("state") != "done" or not run.get("output") or ledger.mirrored.checksums():
        return False
    folder = OutputPath(Path(run["output"])).folder
    return not any(os.path.lexists(folder / name) for name in ledger.written_names())


def describe_attempts(rows: Sequence[Row], *, alive: bool = False) -> list[dict[str, Any]]:
    """Return the attempts of a run.

    Args:
        rows: rows of the ledger's table ``attempts``.
        alive: whether a process works on the last attempt.
    """
    return [
        {
            "n": attempt["n"],
            "pid": attempt["pid"],
            "host": attempt["host"],
            "started": attempt["started"],
            "ended": attempt["ended"]
            or (None if alive and attempt is rows[-1] else attempt["last_seen"]),
            "outcome": attempt["outcome"] or (None if alive and attempt is rows[-1] else "killed"),
            "budget": attempt.get("budget"),
            "peak_rss": attempt["peak_rss"] or 0,
            "units_committed": attempt["units_committed"],
            "bytes_committed": attempt["bytes_committed"] or 0,
        }
        for attempt in rows
    ]


def _last_sample(ledger: Ledger, attempt: int | None) -> dict[str, Any]:
    sample = ledger.samples.last()
    return sample if sample is not None and sample["attempt"] == attempt else {}


def _state(state: str | None, alive: bool, attempted: bool) -> str:
    if state in ("done", "failed") and not alive:
        return state
    if alive:
        return "running"
    return "interrupted" if attempted else "planned"


def _rate(attempt: dict[str, Any]) -> float | None:
    """Return the mean output bytes per second of an attempt; None if it has committed nothing."""
    if not attempt or not attempt["bytes_committed"]:
        return None
    start = datetime.fromisoformat(attempt["started"])
    end = datetime.fromisoformat(attempt["ended"] or attempt["last_seen"])
    seconds = (end - start).total_seconds()
    return round(attempt["bytes_committed"] / seconds, 1) if seconds > 0 else None


def _mirror(ledger: Ledger, url: str | None, done: bool) -> dict[str, Any] | None:
    """Return the state and content of the run's mirror; None for a run without a mirror."""
    if not url:
        return None
    mirrored_names = set(ledger.mirrored.checksums())
    mirrored_sizes = [
        shard["nbytes"] for shard in ledger.shards.all() if shard["name"] in mirrored_names
    ]
    last_event = (
        None if done else ledger.events.last(EventKind.MIRROR_FAILING, EventKind.MIRROR_RECOVERED)
    )
    reason = None
    if last_event is not None and last_event["kind"] == EventKind.MIRROR_FAILING:
        reason = last_event["data"].get("reason")
    return describe_mirror(url, mirrored_sizes, reason)


def describe_mirror(
    url: str, sizes: Sequence[int], failing: str | None = None, *, here: bool = True
) -> dict[str, Any]:
    """Return the entry of a run's mirror in the run's document.

    Args:
        url: the mirror's address.
        sizes: the size of each mirrored shard in bytes.
        failing: the reason why the mirror cannot be written now; None if it can.
        here: whether the run's ledger is on this machine.
    """
    return {
        "url": url,
        "shards": len(sizes),
        "bytes": sum(sizes),
        "failing": failing,
        "here": here,
        "held_by": None,
    }
