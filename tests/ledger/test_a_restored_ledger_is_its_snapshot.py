"""Promise: a ledger restored from its snapshot is that snapshot, whatever files lie beside it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change, make, query
from ordered_storage import Ordered

from resumerge.ledger import (
    LEDGER_FILE,
    SNAPSHOT_FILE,
    Ledger,
    is_reconciled,
    restore_snapshot,
    take_snapshot,
)
from resumerge.storage import Storage

EVENTS = "SELECT kind FROM events ORDER BY id"


def kinds(path: Path) -> list[str]:
    return [row["kind"] for row in query(path, EVENTS)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a killed run, whose ledger has a log of commits after its snapshot."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    with closing(make(live / LEDGER_FILE)) as ledger:
        ledger.events.add("before")
        take_snapshot(ledger, Storage())
        for _ in range(20):
            ledger.events.add("after")
        shutil.copytree(live, dead)
    assert (dead / f"{LEDGER_FILE}-wal").stat().st_size > 4096
    return dead


def restore(folder: Path) -> list[str]:
    """Restore the ledger, and return the kinds of the events that the next process finds."""
    restore_snapshot(folder, Storage())
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        ledger.check()
        assert not is_reconciled(ledger)
    return kinds(folder / LEDGER_FILE)


def test_the_log_of_the_damaged_ledger_is_not_replayed(folder: Path) -> None:
    """SQLite replays a log of that name into whatever file it finds."""
    (folder / LEDGER_FILE).write_bytes(b"\xa5" * 50_000)
    assert restore(folder) == ["before", "ledger_restored"]


def test_nor_where_the_ledger_is_gone(folder: Path) -> None:
    (folder / LEDGER_FILE).unlink()
    assert restore(folder) == ["before", "ledger_restored"]
    assert not (folder / "ledger.damaged.db").exists()


def test_nor_that_of_a_restoration_that_was_killed(folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        log = folder / f"{LEDGER_FILE}{suffix}"
        log.rename(folder / f"ledger.restored.partial{suffix}")
    (folder / LEDGER_FILE).write_bytes(b"")
    assert restore(folder) == ["before", "ledger_restored"]


def test_the_damaged_ledger_is_kept(folder: Path) -> None:
    (folder / LEDGER_FILE).write_bytes(b"damaged")
    restore(folder)
    assert (folder / "ledger.damaged.db").read_bytes() == b"damaged"


def test_the_snapshot_stays_as_it_was(folder: Path) -> None:
    """The snapshot may be needed again."""
    before = (folder / SNAPSHOT_FILE).read_bytes()
    (folder / LEDGER_FILE).write_bytes(b"damaged")
    restore(folder)
    assert (folder / SNAPSHOT_FILE).read_bytes() == before


def test_a_snapshot_has_all_that_was_committed_and_needs_no_file_beside_it(folder: Path) -> None:
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        take_snapshot(ledger, Storage())
        assert {path.name for path in folder.iterdir() if "snapshot" in path.name} == {
            SNAPSHOT_FILE
        }
        away = folder / "away"
        away.mkdir()
        shutil.copy(folder / SNAPSHOT_FILE, away)
    assert kinds(away / SNAPSHOT_FILE) == ["before"] + ["after"] * 20


def test_a_snapshot_is_read_without_a_file_beside_it(folder: Path) -> None:
    """SQLite cannot make a file beside the snapshot if the folder is read-only."""
    (folder / LEDGER_FILE).unlink()
    before = {path.name for path in folder.iterdir()}
    with closing(Ledger(folder / SNAPSHOT_FILE, read_only=True)) as snapshot:
        assert snapshot.events.all("before")
        assert {path.name for path in folder.iterdir()} == before


def test_a_snapshot_is_durable_before_it_takes_the_place_of_the_one_before(folder: Path) -> None:
    storage = Ordered()
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        take_snapshot(ledger, storage)
    fresh = "ledger.snapshot.partial"
    assert storage.done == [f"remove {fresh}", f"sync {fresh}", f"rename to {SNAPSHOT_FILE}"]


def test_a_restored_ledger_is_durable_and_without_a_log_of_others_before_it_has_its_name(
    folder: Path,
) -> None:
    """SQLite would replay the old log into a ledger that got its name too early."""
    storage = Ordered()
    restore_snapshot(folder, storage)
    fresh, suffixes = "ledger.restored.partial", ("-wal", "-shm", "-journal")
    assert storage.done == [
        *(f"remove {fresh}{suffix}" for suffix in suffixes),
        f"sync {fresh}",
        "rename to ledger.damaged.db",
        *(f"remove {LEDGER_FILE}{suffix}" for suffix in suffixes),
        f"rename to {LEDGER_FILE}",
    ]


@pytest.mark.parametrize("left", [b"cut short", b"SQLite format 3\0" + bytes(5000)])
def test_a_copy_takes_the_place_of_what_a_kill_left(folder: Path, left: bytes) -> None:
    (folder / "ledger.snapshot.partial").write_bytes(left)
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        take_snapshot(ledger, Storage())
    assert kinds(folder / SNAPSHOT_FILE) == ["before"] + ["after"] * 20


def test_a_snapshot_that_is_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / SNAPSHOT_FILE).unlink()
    os.mkfifo(folder / SNAPSHOT_FILE)
    with pytest.raises(sqlite3.DatabaseError, match="named pipe"):
        restore_snapshot(folder, Storage())


def test_a_snapshot_that_contradicts_itself_leaves_the_ledger_in_its_place(folder: Path) -> None:
    """SQLite itself finds no damage in the snapshot."""
    change(folder / SNAPSHOT_FILE, "UPDATE units SET nbytes = 17")
    before = (folder / LEDGER_FILE).read_bytes()
    with pytest.raises(sqlite3.DatabaseError, match="nbytes"):
        restore_snapshot(folder, Storage())
    assert (folder / LEDGER_FILE).read_bytes() == before
