"""The SQLite file of a run: plan, progress, attempts, events, samples."""

from resumerge.ledger.ledger import LEDGER_FILE, Ledger, Progress, UnitCommit, now
from resumerge.ledger.snapshot import (
    RECONCILED,
    SNAPSHOT_FILE,
    copy_ledger,
    is_reconciled,
    restore_snapshot,
    take_snapshot,
)

__all__ = [
    "LEDGER_FILE",
    "RECONCILED",
    "SNAPSHOT_FILE",
    "Ledger",
    "Progress",
    "UnitCommit",
    "copy_ledger",
    "is_reconciled",
    "now",
    "restore_snapshot",
    "take_snapshot",
]
