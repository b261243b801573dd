"""Promise: a ledger restored from its snapshot is that snapshot, whatever files lie beside it."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import query
from test_a_column_is_declared_once import make

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
    """Of a run whose process was killed: with a log beside the ledger of what came after its
    snapshot."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    with closing(make(live / LEDGER_FILE)) as ledger:
        ledger.event("before")
        take_snapshot(ledger, Storage())
        for _ in range(20):
            ledger.event("after")
        shutil.copytree(live, dead)
    assert (dead / f"{LEDGER_FILE}-wal").stat().st_size > 4096
    return dead


def restore(folder: Path) -> list[str]:
    """Restore the ledger; the kinds of its events as the next process finds them."""
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
    """It may be needed again."""
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
    """Where its folder is read-only SQLite could make none."""
    (folder / LEDGER_FILE).unlink()
    before = {path.name for path in folder.iterdir()}
    with closing(Ledger(folder / SNAPSHOT_FILE, read_only=True)) as snapshot:
        assert snapshot.events("before")
        assert {path.name for path in folder.iterdir()} == before
