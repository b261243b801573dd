"""The entries that the supervisor writes to a run's ledger after the worker has died."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from resumerge.supervisor.worker_exit import OUTCOMES, WorkerExit


def record_death(ledger: Path, death: WorkerExit, peak_rss: int) -> None:
    """Close the attempt of a dead worker in the ledger, and record the cause of its death.

    Args:
        ledger: the path of the ledger of the worker's run; if it cannot be written, nothing is
            recorded.
        death: the cause and facts of the worker's death.
        peak_rss: the largest measured RSS of the worker, in bytes.
    """
    _write(ledger, death.pid, OUTCOMES[death.cause], peak_rss, death)


def record_interrupted(ledger: Path, pid: int, peak_rss: int) -> None:
    """Close the attempt of a worker that was ended by a second signal.

    Args:
        ledger: the path of the ledger of the worker's run; if it cannot be written, nothing is
            recorded.
        pid: the worker's process id.
        peak_rss: the largest measured RSS of the worker, in bytes.
    """
    _write(ledger, pid, "interrupted", peak_rss, None)


def committed_blocks(ledger: Path) -> int:
    """Return the number of blocks that a run has committed; 0 if the ledger cannot be read."""
    from resumerge.ledger import Ledger

    with suppress(OSError, sqlite3.Error), closing(Ledger(ledger, read_only=True)) as opened_ledger:
        return opened_ledger.units.committed_blocks()
    return 0


def _write(ledger: Path, pid: int, outcome: str, peak_rss: int, death: WorkerExit | None) -> None:
    """Record the end of an attempt, if the ledger can be written.

    Errors are ignored, because a damaged ledger or a full disk must not prevent the restart.
    """
    from resumerge.ledger import Ledger

    with suppress(OSError, sqlite3.Error), closing(Ledger(ledger)) as opened_ledger:
        opened_ledger.attempts.close(pid, outcome, peak_rss)
        if death is not None:
            opened_ledger.events.add(death.event, **death.facts())
