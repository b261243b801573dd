"""The state of a mirror: nothing, an unfinished run, a finished run, other files, or damage.

The files that are read here are untrusted input.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from resumerge.backup_names import is_backup
from resumerge.ledger.import_ledger import LARGEST_SNAPSHOT, import_ledger
from resumerge.ledger.validity import InvalidLedger
from resumerge.mirror.manifest import Manifest, read_manifest
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, snapshot_names
from resumerge.mirror.snapshots import is_intact_snapshot, promises_nothing
from resumerge.mirror.stores.base import METADATA, Store

NOTHING = "nothing"
UNFINISHED = "an unfinished run"
FINISHED = "a finished run"
FOREIGN = "files that no run wrote"
DAMAGED = "a run whose ledger cannot be used"

TRIES = 3
"""The most times that the snapshots are listed.

If a snapshot disappears before it is read, a newer one has replaced it.
"""


@dataclass(frozen=True)
class MirrorState:
    """The content of a mirror.

    Args:
        kind: one of the constants of this module.
        files: the size in bytes of every file in the mirror, by name.
        manifest: the manifest of a finished run; None in any other state.
        snapshot: the name of the imported snapshot of an unfinished run; empty in any other state.
        skipped: newer snapshots that cannot be used, each as ``NAME: REASON``.
        own_files: the names of files that the store itself creates, see `Store`.
    """

    kind: str
    files: Mapping[str, int]
    manifest: Manifest | None = None
    snapshot: str = ""
    skipped: tuple[str, ...] = ()
    own_files: frozenset[str] = frozenset()

    @property
    def others(self) -> list[str]:
        """The names of files that are not metadata, backups or the store's own files."""
        return sorted(
            name
            for name in self.files
            if not name.startswith(f"{METADATA}/")
            and not is_backup(name)
            and name not in self.own_files
        )


def read_state(store: Store, ledger: Path) -> MirrorState:
    """Return the state of the mirror in a store.

    Args:
        store: the store of the mirror, which is only read.
        ledger: the path to write the ledger of an unfinished run to; no file may exist there.

    Raises:
        OSError: the store cannot be read now.
    """
    for _ in range(TRIES):
        files = store.list()
        state = MirrorState(NOTHING, files, own_files=store.own_files)
        if files.get(MANIFEST_FILE) and (manifest := read_manifest(store)):
            return replace(state, kind=FINISHED, manifest=manifest)
        skipped_snapshots, has_disappeared = [], False
        for snapshot in snapshot_names(files):
            try:
                _import_snapshot(store, snapshot, files[snapshot.name], ledger)
            except FileNotFoundError:
                has_disappeared = True
            except InvalidLedger as error:
                skipped_snapshots.append(f"{snapshot.name}: {error}")
            else:
                return replace(
                    state, kind=UNFINISHED, snapshot=snapshot.name, skipped=tuple(skipped_snapshots)
                )
        if not has_disappeared:
            break
    if skipped_snapshots and not promises_nothing(files, store.own_files):
        return replace(state, kind=DAMAGED, skipped=tuple(skipped_snapshots))
    if state.others:
        return replace(state, kind=FOREIGN)
    return replace(state, skipped=tuple(skipped_snapshots))


def _import_snapshot(store: Store, snapshot: SnapshotName, nbytes: int, ledger: Path) -> None:
    """Import a snapshot into a new ledger.

    Raises:
        FileNotFoundError: the snapshot no longer exists.
        InvalidLedger: the snapshot is too large, incomplete or invalid.
    """
    if nbytes > LARGEST_SNAPSHOT:
        raise InvalidLedger("larger than the limit for a ledger")
    snapshot_bytes = store.get(snapshot.name, LARGEST_SNAPSHOT)
    if not is_intact_snapshot(snapshot, snapshot_bytes):
        raise InvalidLedger("incomplete or damaged")
    with tempfile.TemporaryDirectory(dir=ledger.parent) as folder:
        untrusted_path = Path(folder) / "untrusted.db"
        untrusted_path.write_bytes(snapshot_bytes)
        import_ledger(untrusted_path, ledger)
