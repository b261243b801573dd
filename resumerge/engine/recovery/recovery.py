"""What is found on resume, and what is done about it (the recovery table of the architecture)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

from resumerge.engine.execute.checksums import first_mismatch
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.recovery.ownership import set_aside
from resumerge.errors import refuse
from resumerge.ledger import (
    LEDGER_FILE,
    RECONCILED,
    SNAPSHOT_FILE,
    Ledger,
    Progress,
    is_reconciled,
    restore_snapshot,
    take_snapshot,
)
from resumerge.ledger.run_store import RECIPE_FILE
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage

LAST_BATCHES = 2
"""Batches at the end of the last attempt whose units are read again and compared."""


def open_ledger(folder: Path, storage: Storage) -> tuple[Ledger, bool]:
    """Open a run's ledger, from its snapshot if it is damaged.

    Returns:
        The ledger, and whether it was restored and not compared with the shards since; then
        nothing on disk is to be trusted unread.

    Raises:
        InputError: ledger and snapshot are both beyond use; they are left as they are.
        sqlite3.OperationalError: the disk is full or fails, which is no reason to go back to
            the snapshot.
    """
    path = folder / LEDGER_FILE
    try:
        ledger = _open_intact(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        try:
            restore_snapshot(folder, storage)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            raise refuse(
                "The ledger and its snapshot are both damaged",
                where=str(path),
                found=str(error),
                fix=f"start over in a new or emptied folder: "
                f"`resumerge run {folder / RECIPE_FILE} OUT`",
            ) from error
        ledger = _open_intact(path)
    return ledger, not is_reconciled(ledger)


def read_ledger(folder: Path) -> Ledger:
    """Open a run's ledger to read, or its snapshot where that cannot be; nothing is written.

    Raises:
        InputError: neither can be read.
    """
    for name in (LEDGER_FILE, SNAPSHOT_FILE):
        try:
            ledger = Ledger(folder / name, read_only=True)
        except sqlite3.DatabaseError:
            continue
        try:
            if ledger.run() is not None:
                return ledger
        except sqlite3.DatabaseError:
            pass
        ledger.close()
    raise refuse(
        "Neither the ledger nor its snapshot can be read",
        where=str(folder),
        fix="change its permissions, or resume the run, which mends what can be mended",
    )


def _open_intact(path: Path) -> Ledger:
    if not path.exists():
        raise sqlite3.DatabaseError("the ledger is missing")
    ledger = Ledger(path)
    try:
        ledger.check()
    except BaseException:
        ledger.close()
        raise
    return ledger


class Recovery:
    """Brings ledger and shards into agreement before an attempt begins."""

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        files: ShardFiles,
        storage: Storage,
        verify_all: bool,
        heartbeat: Callable[[], None],
        lazy: bool = False,
    ) -> None:
        """
        Args:
            distrust: read everything that is said to be committed, not only the last batches.
            beat: called after every unit that was read.
            lazy: a shard of which nothing is committed has no file yet: there may be no room.
        """
        self._plan, self._ledger, self._files, self._storage = plan, ledger, files, storage
        self._distrust, self._beat, self._lazy = verify_all, heartbeat, lazy

    def run(self) -> list[Progress]:
        """Check every shard; afterwards each is sealed, or open with its partial file in place.

        A sealed one is here, or away: in the mirror alone.

        Returns:
            What is committed, unit by unit.
        """
        states = {row["number"]: row["state"] for row in self._ledger.shards()}
        self._progress = self._ledger.progress()
        self._recent = self._ledger.recent_units(LAST_BATCHES)
        self._mirrored = set(self._ledger.mirrored())
        for shard in self._plan.shards:
            if states[shard.index] == "sealed":
                self._check_sealed(shard)
            elif self._files.final(shard).exists() and not self._files.partial(shard).exists():
                self._check_renamed(shard)
            else:
                self._check_open(shard)
        if self._distrust:
            self._ledger.event(RECONCILED)
        return self._ledger.progress()

    def _check_sealed(self, shard: Shard) -> None:
        path = self._files.final(shard)
        if shard.name in self._mirrored and not path.exists():
            return
        if not self._files.is_intact(shard, path):
            self._lose(shard, path)
        elif self._distrust and self._mismatching(shard, path, range(shard.first, shard.last)):
            self._files.unseal(shard)

    def _check_renamed(self, shard: Shard) -> None:
        """It has its final name, but the ledger says open: the checksums decide."""
        path = self._files.final(shard)
        if not self._files.is_intact(shard, path):
            self._lose(shard, path)
            return
        units = range(shard.first, shard.last)
        whole = all(self._progress[number].checksum for number in units)
        damaged = self._mismatching(shard, path, units)
        if whole and not damaged:
            self._storage.sync_file(path)
            self._storage.sync_folder(path.parent)
            self._ledger.seal(shard.index)
            self._ledger.event("shard_found_whole", shard=shard.name)
        else:
            self._files.unseal(shard)

    def _check_open(self, shard: Shard) -> None:
        path = self._files.partial(shard)
        final = self._files.final(shard)
        if final.is_symlink() or final.exists():  # ours never has both names
            aside = set_aside(final, self._storage)
            self._ledger.event("file_set_aside", name=final.name, now=aside.name)
        units = range(shard.first, shard.last)
        if self._lazy and not any(self._progress[n].committed_blocks for n in units):
            self._storage.remove(path)
            return
        if not self._files.is_intact(shard, path):
            self._lose(shard, path)
            return
        chosen = units if self._distrust else [n for n in units if n in self._recent]
        damaged = self._mismatching(shard, path, chosen)
        if not damaged and all(self._progress[number].checksum for number in units):
            self._files.seal(shard)
            self._ledger.seal(shard.index)
            take_snapshot(self._ledger, self._storage)

    def _lose(self, shard: Shard, path: Path) -> None:
        """The file is missing, short, or another: its units are pending again."""
        found = "missing"
        if path.exists():
            found = f"{path.stat().st_size} bytes, or another header"
            self._storage.remove(path)
        units = [n for n in range(shard.first, shard.last) if self._progress[n].committed_blocks]
        if units:
            self._ledger.forget(units, "shard_lost", shard=shard.name, found=found)
        if not self._lazy:
            self._files.create(shard)

    def _mismatching(self, shard: Shard, path: Path, units: Iterable[int]) -> list[int]:
        """Units whose bytes are not what was committed; they are pending afterwards."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            damaged = []
            for number in units:
                unit, hashes = self._plan.units[number], self._progress[number].hashes
                if first_mismatch(fd, unit, hashes) is not None:
                    damaged.append(number)
                self._beat()
        finally:
            os.close(fd)
        if damaged:
            names = [self._plan.units[number].name for number in damaged[:5]]
            self._ledger.forget(damaged, "checksum_mismatch", shard=shard.name, names=names)
        return damaged
