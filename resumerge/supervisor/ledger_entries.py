"""The supervisor's entries in the ledger of a run whose worker is dead."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from resumerge.supervisor.worker_exit import OUTCOMES, WorkerExit


def record_death(ledger: Path, death: WorkerExit, peak_rss: int) -> None:
    """Close the attempt of a dead worker, and note the cause of its death.

    Args:
        ledger: the path of the run's ledger.
        death: how the worker died.
        peak_rss: largest RSS that was measured, in bytes.
    """
    _write(ledger, death.pid, OUTCOMES[death.cause], peak_rss, death)


def record_interrupted(ledger: Path, pid: int, peak_rss: int) -> None:
    """Close the attempt of a worker that a second signal ended."""
    _write(ledger, pid, "interrupted", peak_rss, None)


def committed_blocks(ledger: Path) -> int:
    """Return the number of blocks that a run has committed; 0 if the ledger cannot be read."""
    from resumerge.ledger import Ledger

    with suppress(OSError, sqlite3.Error), closing(Ledger(ledger, read_only=True)) as opened:
        return opened.units.committed_blocks()
    return 0


def _write(ledger: Path, pid: int, outcome: str, peak_rss: int, death: WorkerExit | None) -> None:
    """Write the end of an attempt, if the ledger can be written.

    Errors are ignored: a damaged ledger or a full disk must not keep the run from resuming.
    """
    from resumerge.ledger import Ledger

    with suppress(OSError, sqlite3.Error), closing(Ledger(ledger)) as opened:
        opened.attempts.close(pid, outcome, peak_rss)
        if death is not None:
            opened.events.add(death.event, **death.facts())
