"""The tables of a new ledger are those that the migrations of sqlite-utils make."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from resumerge.ledger import Ledger
from resumerge.ledger.newest import MIGRATIONS
from resumerge.ledger.schema import migrate, migrations


def tables(connection: sqlite3.Connection) -> dict[tuple[str, str], list[Any]]:
    """Everything that SQLite knows of each table but the text that it was made by."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    facts = ("table_xinfo", "foreign_key_list", "index_list", "index_xinfo")
    return {
        (name, fact): connection.execute(f"PRAGMA {fact}('{name}')").fetchall()
        for name in names
        for fact in facts
    }


def test_the_tables_are_the_same(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "new.db").close()
    new, migrated = sqlite3.connect(tmp_path / "new.db"), sqlite3.connect(tmp_path / "old.db")
    migrate(migrated)
    assert tables(new) == tables(migrated)
    assert tables(new)["units", "table_xinfo"]


def test_no_migration_is_left_to_do(tmp_path: Path) -> None:
    assert tuple(m.name for m in migrations._migrations) == MIGRATIONS
    Ledger.create(tmp_path / "new.db").close()
    from resumerge.ledger.sqlite import Database

    db = Database(sqlite3.connect(tmp_path / "new.db"))
    assert migrations.pending(db) == []
    before = list(db.conn.iterdump())
    migrations.apply(db)
    assert list(db.conn.iterdump()) == before


def test_an_older_ledger_is_migrated_when_it_is_opened_to_go_on(tmp_path: Path) -> None:
    from resumerge.ledger.sqlite import Database

    connection = sqlite3.connect(tmp_path / "ledger.db")
    migrations.apply(Database(connection), stop_before=MIGRATIONS[2])
    connection.execute("INSERT INTO run (id, state) VALUES ('older', 'interrupted')")
    connection.commit()
    connection.close()
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.check()
    ledger.note_mirrored("config.json", 1, "0" * 64)
    assert (ledger.run() or {})["mirror"] is None
    ledger.close()
    new = Ledger.create(tmp_path / "new.db")
    with sqlite3.connect(tmp_path / "ledger.db") as older:
        assert tables(older) == tables(new.db.conn)
    new.close()


def test_a_ledger_opens_in_sqlite_utils(tmp_path: Path) -> None:
    """For those who look inside."""
    from sqlite_utils import Database

    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.note_companion("config.json", 2, "ab")
    ledger.note_companion("config.json", 3, "cd")
    ledger.close()
    [row] = Database(tmp_path / "ledger.db").table("companions").rows
    assert row == {"name": "config.json", "nbytes": 3, "checksum": "cd"}
