"""What a mirror holds: nothing, an unfinished run, a finished one, or something of somebody else.

Whatever is there may have been written by anybody.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from resumerge.mirror.backup_names import is_backup
from resumerge.mirror.lease_record import DONE
from resumerge.mirror.ledger_import import (
    LARGEST_SNAPSHOT,
    InvalidLedger,
    copy_ledger,
    is_safe_name,
)
from resumerge.mirror.manifest import Manifest, read_manifest
from resumerge.mirror.snapshots import is_first, snapshots
from resumerge.mirror.stores.base import METADATA, Store

NOTHING, UNFINISHED, FINISHED, FOREIGN, DAMAGED = (
    "nothing",
    "an unfinished run",
    "a finished run",
    "files that no run of ours wrote",
    "a run whose ledger cannot be used",
)

LARGEST_DONE = 1 << 24
LOOKS = 3
"""Snapshots that vanish while they are read were followed by newer ones."""


@dataclass(frozen=True)
class MirrorState:
    """What a mirror holds.

    Args:
        what: one of the constants of this module.
        files: bytes of everything that is there, by name.
        done: of a finished run.
        snapshot: of an unfinished run: the name of the one that was taken.
        skipped: snapshots that are newer and cannot be used, with why.
        own_files: of the store, see `Store`.
    """

    what: str
    files: Mapping[str, int]
    done: Manifest | None = None
    snapshot: str = ""
    skipped: tuple[str, ...] = ()
    own_files: frozenset[str] = frozenset()

    @property
    def others(self) -> list[str]:
        """Names of files that are neither metadata nor the store's own."""
        return sorted(n for n in self.files if not _is_ours(n) and n not in self.own_files)


def read_state(store: Store, ledger: Path) -> MirrorState:
    """See what a place holds.

    Args:
        ledger: where the ledger of an unfinished run is to be written; it must not be there.

    Raises:
        OSError: the place cannot be read now.
    """
    for _ in range(LOOKS):
        files = store.list()
        if 0 < files.get(DONE, 0) <= LARGEST_DONE and (done := read_manifest(store)) is not None:
            return MirrorState(FINISHED, files, done, own_files=store.own_files)
        skipped, vanished = [], False
        for snapshot in snapshots(files):
            if files[snapshot.name] > LARGEST_SNAPSHOT:
                skipped.append(f"{snapshot.name}: larger than a ledger can be")
                continue
            try:
                data = store.get(snapshot.name)
            except FileNotFoundError:
                vanished = True
                continue
            if xxhash.xxh3_128_hexdigest(data) != snapshot.checksum:
                skipped.append(f"{snapshot.name}: cut short or damaged")
                continue
            try:
                _take(data, ledger)
            except InvalidLedger as error:
                skipped.append(f"{snapshot.name}: {error}")
                continue
            return MirrorState(
                UNFINISHED, files, None, snapshot.name, tuple(skipped), store.own_files
            )
        if not vanished:
            break
    held = MirrorState(NOTHING, files, skipped=tuple(skipped), own_files=store.own_files)
    promised = not is_first(files, store.own_files)  # an incomplete first snapshot promises nothing
    if skipped and promised:
        return replace(held, what=DAMAGED)
    return replace(held, what=FOREIGN, skipped=()) if held.others else held


def _is_ours(name: str) -> bool:
    return name.startswith(f"{METADATA}/") or is_backup(name)


def _take(data: bytes, ledger: Path) -> None:
    with tempfile.TemporaryDirectory(dir=ledger.parent) as folder:
        strange = Path(folder) / "strange.db"
        strange.write_bytes(data)
        copy_ledger(strange, ledger)


__all__ = [
    "DAMAGED",
    "FINISHED",
    "FOREIGN",
    "NOTHING",
    "UNFINISHED",
    "MirrorState",
    "is_safe_name",
    "read_state",
]
