"""Snapshots in a mirror, found and opened without the steps of a resume."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.ledger import Ledger
from resumerge.ledger.import_ledger import LARGEST_SNAPSHOT
from resumerge.mirror.names import SnapshotName, snapshot_names
from resumerge.mirror.snapshots import is_intact_snapshot
from resumerge.mirror.stores.base import Store


def newest_snapshot(store: Store, names: Iterable[str]) -> tuple[SnapshotName, bytes] | None:
    """Return the newest intact snapshot and its bytes; None if there is none.

    Raises:
        OSError: the mirror cannot be read now.
    """
    for snapshot in snapshot_names(names):
        try:
            data = store.get(snapshot.name, LARGEST_SNAPSHOT)
        except FileNotFoundError:  # a newer one has replaced it
            continue
        if is_intact_snapshot(snapshot, data):
            return snapshot, data
    return None


@contextmanager
def open_snapshot(data: bytes) -> Iterator[Ledger]:
    """Open a snapshot's bytes as a ledger, to read.

    Raises:
        sqlite3.DatabaseError: the bytes are not a ledger.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        path.write_bytes(data)
        ledger = Ledger(path, read_only=True)
        try:
            yield ledger
        finally:
            ledger.close()
