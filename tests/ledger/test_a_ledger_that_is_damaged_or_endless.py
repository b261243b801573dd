"""Promise: a ledger in which SQLite finds damage is not used; one from a mirror is read for a
limited time, and only up to a limited size."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import TIME, change, make, query

from resumerge.ledger import Ledger
from resumerge.ledger.import_ledger import import_ledger
from resumerge.ledger.validity import InvalidLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Make a ledger with rows in tables that have an index, and return its path."""
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.set_mirror("/mirror")
        ledger.mirrored.record("config.json", 1, "0" * 64)
        ledger.use_one_file()
    return tmp_path / "ledger.db"


def swap_indices(path: Path) -> None:
    """Exchange the indices of two tables, so that names of one are looked up in the other's."""
    names = [f"sqlite_autoindex_{table}_1" for table in ("mirrored", "companions")]
    found = f"SELECT name, rootpage FROM sqlite_master WHERE name IN {(*names,)}"
    pages = {row["name"]: row["rootpage"] for row in query(path, found)}
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema=ON")
        for name, other in (names, names[::-1]):
            sql = "UPDATE sqlite_master SET rootpage = ? WHERE name = ?"
            db.execute(sql, [pages[other], name])
        db.commit()


def miscount_free_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(36)
        file.write((5).to_bytes(4, "big"))


@pytest.mark.parametrize("damage", [swap_indices, miscount_free_pages])
def test_what_is_damaged_is_not_used(path: Path, tmp_path: Path, damage: object) -> None:
    """A damaged ledger is refused even if each of its rows can be read."""
    assert callable(damage)
    damage(path)
    assert query(path, "SELECT name FROM units") == [{"name": "weight"}]
    with closing(Ledger(path)) as ledger, pytest.raises(sqlite3.DatabaseError):
        ledger.check()
    with pytest.raises(InvalidLedger, match="it is damaged"):
        import_ledger(path, tmp_path / "imported.db")
    assert not (tmp_path / "imported.db").exists()


def test_no_ledger_is_larger_than_268_megabytes(path: Path, tmp_path: Path) -> None:
    """The bytes after the last page are no part of a ledger."""
    os.truncate(path, 1 << 28)
    import_ledger(path, tmp_path / "imported.db")
    os.truncate(path, (1 << 28) + 1)
    with pytest.raises(InvalidLedger, match="larger than the limit"):
        import_ledger(path, tmp_path / "refused.db")


def test_it_is_read_for_so_long_and_no_longer(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = ((n, TIME, None, "noted", "{}") for n in range(1, 3001))
    change(path, "INSERT INTO events VALUES (?, ?, ?, ?, ?)", *events)
    import_ledger(path, tmp_path / "imported.db")
    monkeypatch.setattr("resumerge.ledger.import_ledger.SECONDS", -1.0)
    with pytest.raises(InvalidLedger, match="interrupted"):
        import_ledger(path, tmp_path / "refused.db")
    assert not (tmp_path / "refused.db").exists()


@pytest.mark.parametrize("read_only", [True, False])
def test_what_cannot_be_opened_is_not_damaged(tmp_path: Path, read_only: bool) -> None:
    """A link to itself cannot be opened, nor a file in a folder that is a file."""
    (tmp_path / "ledger.db").symlink_to("ledger.db")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "ledger.db", tmp_path / "file" / "ledger.db"):
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            Ledger(path, read_only=read_only)
