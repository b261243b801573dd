"""The SQLite file of a run: plan, progress, attempts, events, samples."""

from resumerge.ledger.ledger import LEDGER_FILE, Ledger, Progress, UnitCommit, now
from resumerge.ledger.snapshot import SNAPSHOT_FILE, restore_snapshot, take_snapshot

__all__ = [
    "LEDGER_FILE",
    "SNAPSHOT_FILE",
    "Ledger",
    "Progress",
    "UnitCommit",
    "now",
    "restore_snapshot",
    "take_snapshot",
]
