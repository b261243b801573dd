"""The snapshot: a copy of the ledger in the same folder, used if the ledger is damaged."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from resumerge.event_kinds import EventKind
from resumerge.ledger.connection import JOURNALS, check_files
from resumerge.ledger.ledger import LEDGER_FILE, Ledger
from resumerge.storage import Storage

SNAPSHOT_FILE = "ledger.snapshot.db"
_PIECE = 1 << 20


def take_snapshot(ledger: Ledger, storage: Storage) -> None:
    """Copy the ledger with SQLite's backup API, and replace the snapshot atomically."""
    snapshot = ledger.path.with_name(SNAPSHOT_FILE)
    partial_path = snapshot.with_suffix(".partial")
    copy_ledger(ledger, partial_path, storage)
    storage.sync_file(partial_path)
    storage.rename(partial_path, snapshot)


def copy_ledger(ledger: Ledger, path: Path, storage: Storage) -> None:
    """Copy one consistent state of the ledger to a single file. An existing file is replaced.

    Other connections may write to the ledger meanwhile. The copy is not synced to disk.
    """
    storage.remove(path)
    source_db, target_db = sqlite3.connect(ledger.path), sqlite3.connect(path)
    try:
        source_db.backup(target_db)
        target_db.execute("PRAGMA journal_mode=DELETE")
    finally:
        target_db.close()
        source_db.close()


def restore_snapshot(folder: Path, storage: Storage) -> None:
    """Replace a damaged ledger by its snapshot. The damaged file becomes ``ledger.damaged.db``.

    An event in the restored ledger records the replacement.

    Raises:
        sqlite3.DatabaseError: there is no snapshot, or it is damaged. The ledger is unchanged.
    """
    snapshot, ledger_path = folder / SNAPSHOT_FILE, folder / LEDGER_FILE
    if not snapshot.exists():
        raise sqlite3.DatabaseError("there is no snapshot")
    check_files(snapshot)
    restored_path = folder / "ledger.restored.partial"
    _remove_journals(restored_path, storage)
    _copy(snapshot, restored_path, storage)
    restored_ledger = Ledger(restored_path)
    try:
        restored_ledger.check()
        restored_ledger.events.add(EventKind.LEDGER_RESTORED)
        restored_ledger.use_one_file()
    finally:
        restored_ledger.close()
    storage.sync_file(restored_path)
    if ledger_path.exists():
        storage.rename(ledger_path, folder / "ledger.damaged.db")
    _remove_journals(ledger_path, storage)
    storage.rename(restored_path, ledger_path)


def _copy(source: Path, target: Path, storage: Storage) -> None:
    fd = storage.begin(target)
    try:
        with source.open("rb") as file:
            while piece := file.read(_PIECE):
                storage.write(fd, piece, file.tell() - len(piece))
        storage.sync_data(fd)
    finally:
        os.close(fd)


def is_reconciled(ledger: Ledger) -> bool:
    """Return whether a restored ledger was compared with the shards; True if never restored."""
    last_event = ledger.events.last(EventKind.LEDGER_RESTORED, EventKind.LEDGER_RECONCILED)
    return last_event is None or last_event["kind"] == EventKind.LEDGER_RECONCILED


def _remove_journals(path: Path, storage: Storage) -> None:
    for suffix in JOURNALS:
        storage.remove(path.with_name(path.name + suffix))
