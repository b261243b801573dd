"""Snapshots of the ledger in a mirror: writing them, and recognising intact ones.

The name of a snapshot contains the checksum of its bytes. This detects an incomplete snapshot
without relying on rename or fsync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import xxhash

from resumerge.ledger import Ledger, copy_ledger
from resumerge.mirror.names import SnapshotName, snapshot_names
from resumerge.mirror.stores.base import METADATA, Store
from resumerge.output_path import CARD
from resumerge.storage import Storage

COPY_FILE = "ledger.mirror.db"
"""The name of the ledger's copy that is uploaded. It is written to the folder of the ledger."""


def is_intact_snapshot(snapshot: SnapshotName, data: bytes) -> bool:
    """Return whether the bytes of a snapshot have the checksum in its name."""
    return xxhash.xxh3_128_hexdigest(data) == snapshot.checksum


def promises_nothing(names: Iterable[str], own_files: Collection[str]) -> bool:
    """Return whether a mirror that has no intact snapshot now never had one.

    The first snapshot of a machine can be incomplete. A machine writes its second snapshot, or a
    shard, only after an intact snapshot.

    Args:
        names: the names of all files in the mirror.
        own_files: the names of files that the store itself creates.
    """
    names = set(names)
    model_files = {name for name in names if not name.startswith(f"{METADATA}/")} - {
        CARD,
        *own_files,
    }
    return not model_files and all(snapshot.number == 1 for snapshot in snapshot_names(names))


def write_snapshot(
    store: Store, ledger: Ledger, token: int, before: Sequence[SnapshotName]
) -> SnapshotName:
    """Write the present state of the ledger to the mirror, then remove older snapshots.

    Args:
        store: the store of the mirror, which gets the new snapshot before it loses older ones.
        ledger: the ledger to copy. Its folder holds the copy while it is read.
        token: the fencing token of the lease.
        before: all snapshots that may be in the mirror.

    Returns:
        the name of the new snapshot.

    Raises:
        OSError: the mirror cannot be used now. It has an older snapshot, the new one, or both.
    """
    path = ledger.path.with_name(COPY_FILE)
    storage = Storage()
    try:
        copy_ledger(ledger, path, storage)
        ledger_bytes = path.read_bytes()
    finally:
        storage.remove(path)
    number = 1 + max((old.number for old in before if old.token == token), default=0)
    snapshot = SnapshotName(token, number, xxhash.xxh3_128_hexdigest(ledger_bytes))
    store.put({snapshot.name: ledger_bytes}, [old.name for old in before if old < snapshot])
    return snapshot
