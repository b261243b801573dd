"""A copy of the ledger that is kept beside it, in case the ledger itself is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from resumerge.ledger.ledger import LEDGER_FILE, Ledger
from resumerge.storage import Storage

SNAPSHOT_FILE = "ledger.snapshot.db"
RESTORED, RECONCILED = "ledger_restored", "ledger_reconciled"
"""Events: nothing on disk is to be trusted unread between the one and the other."""


def take_snapshot(ledger: Ledger, storage: Storage) -> None:
    """Copy the ledger with SQLite's backup API and put the copy in place at once."""
    final = ledger.path.with_name(SNAPSHOT_FILE)
    fresh = final.with_suffix(".partial")
    copy_ledger(ledger, fresh, storage)
    storage.sync_file(fresh)
    storage.rename(fresh, final)


def copy_ledger(ledger: Ledger, path: Path, storage: Storage) -> None:
    """Write what the ledger holds at one moment into one file, in place of any that is there.

    Others may write to the ledger meanwhile. The copy needs no files beside it; it is not durable.
    """
    storage.remove(path)
    source, target = sqlite3.connect(ledger.path), sqlite3.connect(path)
    try:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
    finally:
        target.close()
        source.close()


def restore_snapshot(folder: Path, storage: Storage) -> None:
    """Put the snapshot in the place of a damaged ledger, which is kept as ``ledger.damaged.db``.

    The restored ledger says by an event that it is one.

    Raises:
        sqlite3.DatabaseError: there is no snapshot, or it is damaged too; nothing was changed.
    """
    snapshot, final = folder / SNAPSHOT_FILE, folder / LEDGER_FILE
    if not snapshot.exists():
        raise sqlite3.DatabaseError("there is no snapshot")
    fresh = folder / "ledger.restored.partial"
    data = snapshot.read_bytes()
    _remove_journals(fresh, storage)
    storage.create(fresh, len(data), data)
    restored = Ledger(fresh)
    try:
        restored.check()
        restored.event(RESTORED)
        restored.use_one_file()
    finally:
        restored.close()
    storage.sync_file(fresh)
    if final.exists():
        storage.rename(final, folder / "ledger.damaged.db")
    _remove_journals(final, storage)
    storage.rename(fresh, final)


def is_reconciled(ledger: Ledger) -> bool:
    """Whether the ledger was never restored, or was compared with the shards since."""
    last = ledger.last_event(RESTORED, RECONCILED)
    return last is None or last["kind"] == RECONCILED


def _remove_journals(path: Path, storage: Storage) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        storage.remove(path.with_name(path.name + suffix))
