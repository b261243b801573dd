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
from resumerge.mirror.snapshots import OF_HUB, is_first, snapshots
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
    """

    what: str
    files: Mapping[str, int]
    done: Manifest | None = None
    snapshot: str = ""
    skipped: tuple[str, ...] = ()

    @property
    def others(self) -> list[str]:
        """Names of files that are not bookkeeping, nor the Hub's own."""
        return sorted(name for name in self.files if not _is_ours(name) and name not in OF_HUB)


def read_state(store: Store, ledger: Path) -> MirrorState:
    """See what a place holds.

    Args:
        ledger: where the ledger of an unfinished run is to be written; it must not be there.

    Raises:
        OSError: the place cannot be read now.
    """
    for _ in range(LOOKS):
        files = store.files()
        if 0 < files.get(DONE, 0) <= LARGEST_DONE and (done := read_manifest(store)) is not None:
            return MirrorState(FINISHED, files, done)
        skipped, vanished = [], False
        for snapshot in snapshots(files):
            if files[snapshot.name] > LARGEST_SNAPSHOT:
                skipped.append(f"{snapshot.name}: larger than a ledger can be")
                continue
            try:
                data = store.read(snapshot.name)
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
            return MirrorState(UNFINISHED, files, None, snapshot.name, tuple(skipped))
        if not vanished:
            break
    held = MirrorState(NOTHING, files, skipped=tuple(skipped))
    if skipped and not is_first(files):  # one that was cut short promised nothing yet
        return replace(held, what=DAMAGED)
    on_hub = store.url.startswith("hf://")
    foreign = held.others if on_hub else [n for n in files if not _is_ours(n)]
    return MirrorState(FOREIGN, files) if foreign else held


def is_mirror(folder: Path) -> bool:
    """Whether a folder is, or was, a mirror."""
    return (folder / METADATA).is_dir()


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
    "is_mirror",
    "is_safe_name",
    "read_state",
]
