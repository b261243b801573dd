"""A copy of the ledger that is kept beside it, in case the ledger itself is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from resumerge.ledger.ledger import LEDGER_FILE, Ledger
from resumerge.storage import Storage

SNAPSHOT_FILE = "ledger.snapshot.db"


def take_snapshot(ledger: Ledger, storage: Storage) -> None:
    """Copy the ledger with SQLite's backup API and put the copy in place at once."""
    final = ledger.path.with_name(SNAPSHOT_FILE)
    fresh = final.with_suffix(".partial")
    storage.remove(fresh)
    source, target = sqlite3.connect(ledger.path), sqlite3.connect(fresh)
    try:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
    finally:
        target.close()
        source.close()
    storage.sync_file(fresh)
    storage.rename(fresh, final)


def restore_snapshot(folder: Path, storage: Storage) -> bool:
    """Put the snapshot in the place of a damaged ledger, which is kept as ``ledger.damaged.db``.

    Returns:
        False where there is no snapshot.
    """
    snapshot, ledger = folder / SNAPSHOT_FILE, folder / LEDGER_FILE
    if not snapshot.exists():
        return False
    if ledger.exists():
        storage.rename(ledger, folder / "ledger.damaged.db")
    for suffix in ("-wal", "-shm"):
        storage.remove(folder / (LEDGER_FILE + suffix))
    fresh = folder / "ledger.restored.partial"
    storage.write_file(fresh, snapshot.read_bytes())
    storage.rename(fresh, ledger)
    return True
