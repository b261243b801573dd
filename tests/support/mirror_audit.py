"""An audit of a mirror, which tests run after everything that may damage one.

Every file that the manifest, or else the newest snapshot, promises is compared with the file in the
mirror, by SHA-256.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from opened_snapshots import newest_snapshot, open_snapshot

from resumerge.mirror.damaged_files import find_damaged
from resumerge.mirror.manifest import read_manifest
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, snapshot_names
from resumerge.mirror.snapshots import promises_nothing
from resumerge.mirror.stores.base import Moved, Store

TRIES = 20
"""The most audits: a run that writes to the mirror during an audit makes another one necessary."""


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    Args:
        state: ``empty`` if nothing is promised yet, ``unfinished`` or ``finished``.
        snapshot: the newest intact snapshot of an unfinished mirror.
        files: bytes and SHA-256 of each promised file, by name.
        problems: what is wrong, by the name of the file.
    """

    state: str
    snapshot: SnapshotName | None
    files: Mapping[str, tuple[int, str]]
    problems: Mapping[str, str]

    @property
    def consistent(self) -> bool:
        return not self.problems


def check_mirror(store: Store, moved: Moved = lambda nbytes: None) -> AuditResult:
    """Read everything that a mirror promises. A run may be writing to it at the same time.

    Args:
        moved: called with the number of bytes that were read; may raise to stop.

    Raises:
        OSError: the mirror cannot be read now.
    """
    for _ in range(TRIES):
        before = _promising_files(store)
        found = _audit(store, before, moved)
        if found.consistent or _promising_files(store) == before:
            break
    return found


def _promising_files(store: Store) -> set[str]:
    """Return the names of the snapshots and the manifest."""
    names = store.list()
    return {snapshot.name for snapshot in snapshot_names(names)} | ({MANIFEST_FILE} & set(names))


def _audit(store: Store, names: set[str], moved: Moved) -> AuditResult:
    manifest = read_manifest(store) if MANIFEST_FILE in names else None
    if manifest is not None:
        problems = find_damaged(store, manifest.files, moved)
        return AuditResult("finished", None, manifest.files, problems)
    known = snapshot_names(names)
    found = newest_snapshot(store, names)
    if found is None:
        fresh = not known or promises_nothing(store.list(), store.own_files)
        problems = {} if fresh else {known[0].name: "no snapshot of the ledger is intact"}
        return AuditResult("empty", None, {}, problems)
    snapshot, data = found
    try:
        with open_snapshot(data) as ledger:
            files = ledger.mirrored.files()
    except sqlite3.DatabaseError as error:
        return AuditResult("unfinished", snapshot, {}, {snapshot.name: str(error)})
    return AuditResult("unfinished", snapshot, files, find_damaged(store, files, moved))
