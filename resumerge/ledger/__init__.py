"""The SQLite file of a run: plan, progress, attempts, events, samples."""

from resumerge.ledger.connection import Row, now
from resumerge.ledger.ledger import LEDGER_FILE, Ledger, read_run
from resumerge.ledger.snapshot import (
    RECONCILED,
    SNAPSHOT_FILE,
    copy_ledger,
    is_reconciled,
    restore_snapshot,
    take_snapshot,
)
from resumerge.ledger.units import Progress, Totals, UnitCommit

__all__ = [
    "LEDGER_FILE",
    "RECONCILED",
    "SNAPSHOT_FILE",
    "Ledger",
    "Progress",
    "Row",
    "Totals",
    "UnitCommit",
    "copy_ledger",
    "is_reconciled",
    "now",
    "read_run",
    "restore_snapshot",
    "take_snapshot",
]
