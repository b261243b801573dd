"""``resumerge status --watch``: the display of a run until it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from rich.console import Console, Group

from resumerge.documents.status import status_json
from resumerge.ledger.run_store import RunStore
from resumerge.ui.terminal.keys import wait_for_q
from resumerge.ui.terminal.prose import Prose

LEAVING = "q or Ctrl-C leaves; the run goes on"

REFRESH_SECONDS = 0.5
LARGEST_SHARE = 0.05
"""The largest share of a core's time for the display, which must not slow down the run."""

RESTART_SECONDS = 5.0
"""The most seconds without a process between a killed attempt and the next attempt."""


def watch(store: RunStore, wanted: str | None, console: Console) -> None:
    """Redraw a run until it ends, or until Ctrl-C or q is typed.

    Without a terminal, the run is drawn once, when it has ended.
    """
    from rich.live import Live

    from resumerge.ui.terminal.status import show_live, show_run

    run = None
    try:
        with (
            wait_for_q() as wait,
            Live(console=console, auto_refresh=False, transient=True) as live,
        ):
            for document in _documents(store, wanted, wait):
                run = document["runs"][0]
                if console.is_terminal:
                    run_view = show_live(run, console.height - 1)
                    live.update(Group(run_view, Prose(LEAVING, style="dim")), refresh=True)
    except KeyboardInterrupt:
        pass
    if run is not None:
        console.print(show_run(run), crop=False)


def watch_json(store: RunStore, wanted: str | None, stream: TextIO) -> None:
    """Write the documents of ``status --json``, one per line, until the run ends."""
    try:
        for document in _documents(store, wanted, _wait):
            print(json.dumps(document), file=stream, flush=True)
    except KeyboardInterrupt:
        pass


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _documents(
    store: RunStore, wanted: str | None, wait: Callable[[float], bool]
) -> Iterator[dict[str, Any]]:
    """Yield the status of one run repeatedly, at last its status at the end.

    Args:
        store: the folder of all runs.
        wanted: the run's id or output; None for the newest run.
        wait: waits for the given seconds, and returns whether to end.
    """
    name = store.find(wanted).name
    last_alive = None
    while True:
        started_at = time.monotonic()
        document = status_json(store, name)
        state = document["runs"][0]["state"]
        if state == "running":
            last_alive = started_at
        yield document
        if state in ("done", "failed") or last_alive is None:
            return
        if started_at - last_alive > RESTART_SECONDS:
            return
        spent_seconds = time.monotonic() - started_at
        if wait(max(REFRESH_SECONDS, spent_seconds / LARGEST_SHARE)):
            return
