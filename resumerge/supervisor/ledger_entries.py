"""What the supervisor writes into the ledger of a run whose worker is dead."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from resumerge.supervisor.worker_exit import OUTCOMES, WorkerExit


def record(ledger: Path, death: WorkerExit, peak_rss: int) -> None:
    """Close the attempt of a dead worker, with an event that says why it died.

    Args:
        peak_rss: the most that the worker was seen with, in bytes.
    """
    _write(ledger, death.pid, OUTCOMES[death.cause], peak_rss, death)


def record_interrupted(ledger: Path, pid: int, peak_rss: int) -> None:
    """Close the attempt of a worker that was told to leave at once, and did."""
    _write(ledger, pid, "interrupted", peak_rss, None)


def committed_blocks(ledger: Path) -> int:
    """How many blocks a run has committed; 0 where the ledger cannot be read."""
    from resumerge.ledger import Ledger

    with suppress(OSError, sqlite3.Error), closing(Ledger(ledger, read_only=True)) as opened:
        return opened.committed_blocks()
    return 0


def _write(ledger: Path, pid: int, outcome: str, peak_rss: int, death: WorkerExit | None) -> None:
    """A ledger that is damaged, or on a full disk, must not keep the run from going on."""
    from resumerge.ledger import Ledger

    with suppress(OSError, sqlite3.Error), closing(Ledger(ledger)) as opened:
        opened.close_attempt(pid, outcome, peak_rss)
        if death is not None:
            opened.event(death.event, **death.facts())
