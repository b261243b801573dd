"""Snapshots of the ledger on the far side: written, found, and told from halves of one.

A snapshot's name says how new it is and has the checksum of its bytes, so that one that is not
whole is no snapshot: neither rename nor fsync is needed to tell.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import xxhash

from resumerge.ledger import Ledger, copy_ledger
from resumerge.mirror.backup_names import CARD
from resumerge.mirror.stores.base import METADATA, Store
from resumerge.storage import Storage

_NAME = re.compile(rf"{re.escape(METADATA)}/ledger-(\d{{6,}})-(\d{{6,}})-([0-9a-f]{{32}})\.db")

COPY_FILE = "ledger.mirror.db"
"""Beside the ledger: its copy, on the way to the mirror."""


@dataclass(frozen=True, order=True)
class Snapshot:
    """The name of a snapshot; the greatest is the newest.

    Args:
        epoch: of the lease of the machine that wrote it.
        number: counts those of one epoch.
        checksum: xxh3-128 of its bytes, 32 hex digits.
    """

    epoch: int
    number: int
    checksum: str

    @property
    def name(self) -> str:
        """Of the file, in the mirror."""
        return f"{METADATA}/ledger-{self.epoch:06}-{self.number:06}-{self.checksum}.db"


def snapshots(names: Iterable[str]) -> list[Snapshot]:
    """Those among the names of files, newest first; whether they are whole is not looked at."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(
        (Snapshot(int(match[1]), int(match[2]), match[3]) for match in found if match),
        reverse=True,
    )


def is_first(names: Iterable[str], own_files: Collection[str]) -> bool:
    """Whether, if no snapshot among the names of files is whole, none ever was.

    The first one of a machine may have been cut short, and that of the one after it; but none
    that follows one that was whole, and no shard is brought before that.
    """
    there = set(names)
    model = {name for name in there if not name.startswith(f"{METADATA}/")}
    model -= {CARD, *own_files}
    return not model and all(snapshot.number == 1 for snapshot in snapshots(there))


def newest(store: Store, names: Iterable[str]) -> tuple[Snapshot, bytes] | None:
    """The newest snapshot that is whole, and its bytes; None where there is none.

    Raises:
        OSError: the mirror cannot be read now.
    """
    for snapshot in snapshots(names):
        try:
            data = store.get(snapshot.name)
        except FileNotFoundError:  # removed since, for a newer one
            continue
        if xxhash.xxh3_128_hexdigest(data) == snapshot.checksum:
            return snapshot, data
    return None


def write_snapshot(
    store: Store, ledger: Ledger, epoch: int, before: Sequence[Snapshot]
) -> Snapshot:
    """Bring the ledger, as it is now, to the mirror; older snapshots are removed after.

    Args:
        before: all that may be there.

    Raises:
        OSError: the mirror cannot be used now. An older snapshot is still there, or the new one
            is, or both.
    """
    path = ledger.path.with_name(COPY_FILE)
    here = Storage()
    try:
        copy_ledger(ledger, path, here)
        data = path.read_bytes()
    finally:
        here.remove(path)
    number = 1 + max((old.number for old in before if old.epoch == epoch), default=0)
    snapshot = Snapshot(epoch, number, xxhash.xxh3_128_hexdigest(data))
    store.put({snapshot.name: data}, [old.name for old in before if old < snapshot])
    return snapshot


@contextmanager
def opened(data: bytes) -> Iterator[Ledger]:
    """A snapshot's bytes as a ledger, to read.

    Raises:
        sqlite3.DatabaseError: they are no ledger.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        path.write_bytes(data)
        ledger = Ledger(path, read_only=True)
        try:
            yield ledger
        finally:
            ledger.close()
