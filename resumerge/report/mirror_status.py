"""What is known of a run's mirror, from its ledger; and what a mirror alone says of its run."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.report.sizes import show_size

HEARD_SECONDS = 600.0
"""A lease that was written longer ago, by the clocks, is taken for a dead one."""


def mirror_of(ledger: Ledger, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """The field ``mirror`` of a run in ``status --json``; None where it has none."""
    if not run.get("mirror"):
        return None
    there = set(ledger.mirrored())
    mirrored = [shard["nbytes"] for shard in ledger.shards() if shard["name"] in there]
    last = ledger.last_event("mirror_failing", "mirror_recovered")
    failing = run["state"] != "done" and last is not None and last["kind"] == "mirror_failing"
    return {
        "url": run["mirror"],
        "shards": len(mirrored),
        "bytes": sum(mirrored),
        "failing": last["data"].get("reason") if last is not None and failing else None,
        "here": True,
        "held_by": None,
    }


def told_mirror(run: Mapping[str, Any]) -> str:
    """One line on a run's mirror; empty where it has none."""
    mirror = run.get("mirror")
    if not mirror:
        return ""
    text = (
        f"{mirror['url']}: {mirror['shards']} of {run['shards']['total']} shards, "
        f"{show_size(mirror['bytes'])}"
    )
    if mirror["held_by"]:
        text += f"; held by {mirror['held_by']}"
    return text + (f"; it fails: {mirror['failing']}" if mirror["failing"] else "")


def status_of_mirror(url: str) -> dict[str, Any]:
    """A run as its mirror knows it, as one of the runs of ``status --json``.

    Raises:
        InputError: there is no run in it.
        Resumable: it cannot be read now.
    """
    from resumerge.engine.mirrored.mirror_session import MirrorSession, refuse_mirror
    from resumerge.engine.reporter import Reporter
    from resumerge.engine.resources.signals import StopRequest
    from resumerge.mirror.lease_record import read_lease
    from resumerge.mirror.retrying import retry
    from resumerge.options import Options
    from resumerge.report.status import describe

    far = MirrorSession(url, Options(), Reporter(), StopRequest())
    folder = _folder(url)
    held = far.read_state(folder / LEDGER_FILE)
    if held.done is not None:
        return _finished(far.url, held.done.run, held.done.files)
    if not held.snapshot:
        raise refuse_mirror(far, held)
    holder = retry(far.store, lambda: read_lease(far.store, held.files))
    alive = holder is not None and not holder.released and _age(holder.at) < HEARD_SECONDS
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        ledger.set_mirror_url(far.url)
        found = describe(ledger, folder, alive=alive)
    found["state"] = "running" if alive else "interrupted"
    found["mirror"] |= {"here": False, "held_by": str(holder) if alive else None}
    return found


_folders: dict[str, Path] = {}
"""Where ledgers of mirrors are: plots are read from them when they are shown."""


def _folder(url: str) -> Path:
    """A new folder for what comes from a mirror, in place of the one before."""
    if url in _folders:
        shutil.rmtree(_folders[url], ignore_errors=True)
    folder = _folders[url] = Path(tempfile.mkdtemp(prefix="resumerge-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _finished(url: str, run: str, files: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    shards = [size for name, (size, _) in files.items() if name.endswith(".safetensors")]
    count, nbytes = len(shards), sum(shards)
    return {
        "id": run,
        "state": "done",
        "config": None,
        "output": url,
        "ledger": None,
        "created": None,
        "units": {"total": 0, "committed": 0},
        "bytes": {"total": nbytes, "committed": nbytes},
        "shards": {"total": count, "sealed": count},
        "memory": {"budget": None, "peak_rss": 0, "batch_bytes": None},
        "rate_bytes_per_s": None,
        "eta_s": None,
        "merging_s": None,
        "attempts": [],
        "events": [],
        "mirror": {
            "url": url,
            "shards": count,
            "bytes": nbytes,
            "failing": None,
            "here": False,
            "held_by": None,
        },
    }


def _age(at: str) -> float:
    """Seconds since a time that another machine wrote down."""
    try:
        heard = datetime.fromisoformat(at)
        return abs((datetime.now(UTC) - heard).total_seconds())
    except (ValueError, TypeError):
        return float("inf")
