"""The tables of a ledger are those that are declared; a column is one line of the declaration."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import change, make, query

from resumerge.ledger import Ledger
from resumerge.ledger.import_ledger import import_ledger
from resumerge.ledger.tables import STAYS, TABLES, Column
from resumerge.ledger.units import UnitCommit
from resumerge.ledger.validators import or_null, text
from resumerge.ledger.validity import InvalidLedger


def columns(ledger: Path, table: str) -> dict[str, dict[str, Any]]:
    """Return what SQLite knows of each column of a table, by name."""
    return {row["name"]: row for row in query(ledger, f"PRAGMA table_xinfo({table})")}


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Column], None]]:
    """Yield a function that adds a column to the declaration of a table."""

    def add(name: str, column: Column) -> None:
        table = TABLES[name]
        monkeypatch.setitem(TABLES, name, replace(table, columns=(*table.columns, column)))

    yield add


def test_every_column_is_declared(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger.db").close()
    names = [row["name"] for row in query(tmp_path / "ledger.db", "SELECT name FROM sqlite_master"
                                          " WHERE type = 'table'")]  # fmt: skip
    assert sorted(names) == sorted(TABLES)
    for name, table in TABLES.items():
        found = columns(tmp_path / "ledger.db", name)
        assert list(found) == [column.name for column in table.columns]
        assert [row["pk"] for row in found.values()] == [1] + [0] * (len(found) - 1)
        assert not any(row["notnull"] or row["dflt_value"] for row in found.values())


def test_every_column_has_a_validator_or_stays() -> None:
    for name, table in TABLES.items():
        for column in table.columns:
            assert column.validator is STAYS or callable(column.validator), (name, column.name)
    staying = {
        (name, column.name)
        for name, table in TABLES.items()
        for column in table.columns
        if column.validator is STAYS and name not in ("companions", "downloads", "steps")
    }
    assert staying == {("run", "mirror"), ("sources", "stamps")}


def test_each_result_of_a_unit_is_committed() -> None:
    commit = UnitCommit(number=1, hashes=b"", input_hashes=b"", checksum=None, seconds=0.0)
    results = {column.name for column in TABLES["units"].columns if column.result}
    assert commit.results.keys() == {"state", *results}


def test_a_new_column_is_created_imported_and_validated(
    tmp_path: Path, declare: Callable[[str, Column], None]
) -> None:
    declare("units", Column("mood", str, or_null(text(4))))
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.use_one_file()
    change(tmp_path / "ledger.db", "UPDATE units SET mood = 'calm'")
    import_ledger(tmp_path / "ledger.db", tmp_path / "imported.db")
    with closing(Ledger(tmp_path / "imported.db")) as imported:
        assert [unit["mood"] for unit in imported.units.all()] == ["calm"]
    change(tmp_path / "ledger.db", "UPDATE units SET mood = 'angry'")
    with pytest.raises(InvalidLedger, match=r"units\.mood has the invalid value 'angry'"):
        import_ledger(tmp_path / "ledger.db", tmp_path / "refused.db")
    assert not (tmp_path / "refused.db").exists()


def test_a_new_column_of_a_unit_s_result_is_copied_and_cleared(
    tmp_path: Path, declare: Callable[[str, Column], None]
) -> None:
    declare("units", Column("norm", float, STAYS, result=True))
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.shards.adopt_mirrored(
            {0: [{**ledger.units.all(0)[0], "committed_blocks": 1, "norm": 2.5}]}, {}
        )
        assert [(unit["norm"], unit["committed_blocks"]) for unit in ledger.units.all()] == [
            (2.5, 1)
        ]
        ledger.units.forget([0], "lost")
        assert [(unit["norm"], unit["committed_blocks"]) for unit in ledger.units.all()] == [
            (None, 0)
        ]


def test_an_older_ledger_gets_a_new_column_when_it_is_resumed(
    tmp_path: Path, declare: Callable[[str, Column], None]
) -> None:
    make(tmp_path / "ledger.db").close()
    declare("units", Column("mood", str, STAYS))
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        ledger.check()
        assert [unit["mood"] for unit in ledger.units.all()] == [None]
    Ledger.create(tmp_path / "new.db").close()
    for name in TABLES:
        assert columns(tmp_path / "ledger.db", name) == columns(tmp_path / "new.db", name)


def test_an_older_ledger_gets_a_new_table_when_it_is_resumed(tmp_path: Path) -> None:
    make(tmp_path / "ledger.db").close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        db.executescript("ALTER TABLE run DROP COLUMN mirror; DROP TABLE mirrored")
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        ledger.check()
        ledger.mirrored.record("config.json", 1, "0" * 64)
        assert ledger.run()["mirror"] is None
        assert ledger.mirrored.files() == {"config.json": (1, "0" * 64)}


def test_a_ledger_that_is_complete_is_not_changed_when_it_is_resumed(tmp_path: Path) -> None:
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.use_one_file()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        before = list(db.iterdump())
        with closing(Ledger(tmp_path / "ledger.db")) as ledger:
            ledger.check()
        assert list(db.iterdump()) == before


def test_two_rows_with_one_key_are_refused(tmp_path: Path) -> None:
    """SQLite itself refuses such rows if the table declares the key."""
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.mirrored.record("config.json", 1, "0" * 64)
        ledger.use_one_file()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        db.executescript(
            "CREATE TABLE twice (name TEXT, nbytes INTEGER, sha256 TEXT, at TEXT);"
            "INSERT INTO twice SELECT * FROM mirrored; INSERT INTO twice SELECT * FROM mirrored;"
            "DROP TABLE mirrored; ALTER TABLE twice RENAME TO mirrored"
        )
    with pytest.raises(InvalidLedger, match=r"mirrored\.name is declared as 'name TEXT'"):
        import_ledger(tmp_path / "ledger.db", tmp_path / "imported.db")
    assert not (tmp_path / "imported.db").exists()


def test_a_ledger_opens_in_sqlite_utils(tmp_path: Path) -> None:
    """Users look inside a ledger with sqlite-utils."""
    from sqlite_utils import Database

    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.companions.record("config.json", 2, "ab")
    ledger.companions.record("config.json", 3, "cd")
    ledger.close()
    [row] = Database(tmp_path / "ledger.db").table("companions").rows
    assert row == {"name": "config.json", "nbytes": 3, "checksum": "cd"}
