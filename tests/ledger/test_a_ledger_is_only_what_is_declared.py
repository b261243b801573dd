"""A database that has anything else than a ledger's tables is not opened; what an older ledger
lacks is null. Numbers that are counted up have room.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import TIME, UNIT, change, make, query

from resumerge.ledger import Ledger, Sample, UnitCommit
from resumerge.ledger.import_ledger import import_ledger
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validators import LARGEST, MOST_SECONDS
from resumerge.ledger.validity import InvalidLedger

SAMPLE = Sample(rss=1, available=1, budget=1, batch_bytes=1, bytes_done=1)


def altered(folder: Path, sql: str) -> Path:
    """Make a ledger of one tensor and one attempt, and execute these statements in it.

    The view is dropped first, because SQLite checks views, too.
    """
    with closing(make(folder / "ledger.db")) as ledger:
        ledger.attempts.start({"pid": 1, "host": "here"})
        ledger.units.commit_batch(1, 1, [], {"bytes_committed": 5}, SAMPLE)
        ledger.events.add("happened")
        ledger.use_one_file()
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        db.executescript(f"DROP VIEW progress; {sql}")
    return folder / "ledger.db"


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("CREATE TRIGGER t AFTER UPDATE ON run BEGIN DELETE FROM units; END", "the trigger 't'"),
        ("CREATE TRIGGER t AFTER UPDATE ON run BEGIN SELECT RAISE(ABORT, 'no'); END", "trigger"),
        ("CREATE VIEW v AS SELECT 1", "the view 'v', which"),
        ("ALTER TABLE events RENAME TO o; CREATE VIEW events AS SELECT * FROM o", "view 'events'"),
        ("CREATE UNIQUE INDEX i ON samples (budget)", "the index 'i', which"),
        ("CREATE INDEX i ON units (length(name))", "the index 'i', which"),
        ("CREATE TABLE t (a UNIQUE)", "the table 't', which"),
        ("CREATE TABLE t (a CHECK (a > 5))", "the table 't', which"),
        ("ALTER TABLE run ADD COLUMN x AS (length(id))", "the table 'run', which"),
        ("ALTER TABLE run ADD COLUMN x NOT NULL DEFAULT 5", "the table 'run', which"),
        ("ALTER TABLE attempts RENAME COLUMN n TO m", r"attempts\.n is missing"),
        ("ALTER TABLE attempts RENAME COLUMN ended TO ENDED", r"attempts\.ended is declared"),
        ("ALTER TABLE attempts DROP COLUMN started", r"attempts\.started is missing"),
        ("DROP TABLE samples; CREATE TABLE samples (id, at, attempt)", r"samples\.id is declared"),
        ("DROP TABLE samples; CREATE TABLE Samples (id, at, attempt)", "table 'Samples', which"),
        ("ALTER TABLE shards RENAME TO other", r"units\.shard is declared"),
        ("ALTER TABLE units RENAME COLUMN shard TO s; ALTER TABLE units ADD COLUMN shard TEXT",
         r"units\.shard is declared as 'shard TEXT'"),
        ("DROP TABLE samples; CREATE VIRTUAL TABLE samples USING fts5(a)", "'samples'"),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b) WITHOUT ROWID", "the table 't', which"),
    ],
)  # fmt: skip
def test_nothing_is_read_or_written_of_any_other(tmp_path: Path, sql: str, named: str) -> None:
    ledger = altered(tmp_path, sql)
    before = ledger.read_bytes()
    for read_only in (True, False):
        with pytest.raises(InvalidLedger, match=named):
            Ledger(ledger, read_only=read_only)
    with pytest.raises(InvalidLedger, match=named):
        import_ledger(ledger, tmp_path / "imported.db")
    assert ledger.read_bytes() == before
    assert not list(tmp_path.glob("ledger.db-*"))


@pytest.mark.parametrize("read_only", [True, False])
def test_a_schema_that_is_not_text(tmp_path: Path, read_only: bool) -> None:
    """SQLite names what it cannot parse, and its message cannot be decoded either."""
    path = altered(tmp_path, "")
    data = path.read_bytes()
    name = b'TABLE "samples" ('
    assert data.count(name) == 1
    for damage in (b'TABLE "sampl\xff\xfe" (', b'TABXE "sampl\xff\xfe" ('):
        path.write_bytes(data.replace(name, damage))
        with pytest.raises(sqlite3.DatabaseError):
            Ledger(path, read_only=read_only)
    at = data.index(b"samples" + b"samples")
    path.write_bytes(data[:at] + b"sampl\xff\xfe" * 2 + data[at + 14 :])
    with pytest.raises(sqlite3.DatabaseError):
        Ledger(path, read_only=read_only)


def test_a_ledger_without_a_plan_has_no_run(tmp_path: Path) -> None:
    with closing(Ledger.create(tmp_path / "ledger.db")) as ledger:
        assert ledger.run_or_none() is None
        with pytest.raises(InvalidLedger, match="contains no run"):
            ledger.run()


def test_plain_tables_and_columns_of_others_do_not_matter(tmp_path: Path) -> None:
    path = altered(tmp_path, "CREATE TABLE mine (a, b TEXT); ALTER TABLE run ADD COLUMN mine; "
                             "ANALYZE")  # fmt: skip
    with closing(Ledger(path)) as ledger:
        ledger.check()
        ledger.set_state("done")


@pytest.mark.parametrize("name", TABLES)
def test_what_is_missing_is_null_to_those_who_only_read(tmp_path: Path, name: str) -> None:
    nullable = [column.name for column in TABLES[name].columns if column.accepts(None)]
    path = altered(tmp_path, "".join(f'ALTER TABLE {name} DROP COLUMN "{c}";' for c in nullable))
    before = path.read_bytes()
    with closing(Ledger(path, read_only=True)) as ledger:
        ledger.check_rows()
        assert ledger.run()["state"] == "running"
        assert (
            len(ledger.attempts.all()) == len(ledger.units.all()) == len(ledger.shards.all()) == 1
        )
        assert ledger.attempts.all()[0]["outcome"] is None
        assert ledger.shards.reset_shards() == ledger.units.recent(2) == set()
        assert (
            len(ledger.samples.groups(5))
            == len(ledger.units.progress())
            == len(ledger.events.all())
            == 1
        )
    assert path.read_bytes() == before
    import_ledger(path, tmp_path / "imported.db")


def test_a_table_that_is_missing_has_no_rows_to_those_who_only_read(tmp_path: Path) -> None:
    names = ("attempts", "events", "samples", "mirrored", "companions", "downloads")
    path = altered(tmp_path, "".join(f"DROP TABLE {name};" for name in names))
    before = path.read_bytes()
    with closing(Ledger(path, read_only=True)) as ledger:
        ledger.check_rows()
        assert ledger.attempts.all() == ledger.events.all() == ledger.samples.groups(5) == []
        assert (
            ledger.mirrored.checksums()
            == ledger.companions.checksums()
            == ledger.downloads.inodes()
            == {}
        )
    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["attempts", "events", "samples"])
@pytest.mark.parametrize("number", [0, 2, 99, 2**31, LARGEST, LARGEST - 1, 2**63 - 1])
def test_the_next_number_of_what_is_counted_can_be_read(
    tmp_path: Path, table: str, number: int
) -> None:
    path = altered(tmp_path, f"UPDATE {table} SET {TABLES[table].columns[0].name} = {number}")
    with closing(Ledger(path)) as ledger, pytest.raises(InvalidLedger, match=rf"{table}\."):
        ledger.check()


def test_a_unit_is_of_an_attempt_that_there_was(tmp_path: Path) -> None:
    path = altered(tmp_path, "UPDATE units SET attempt = 2")
    with closing(Ledger(path)) as ledger, pytest.raises(InvalidLedger, match=r"units\.attempt"):
        ledger.check()


def test_sums_of_the_largest_numbers_can_be_read(tmp_path: Path) -> None:
    path = altered(tmp_path, f"UPDATE samples SET rss = {LARGEST}, available = {LARGEST};"
                             f"UPDATE units SET seconds = {MOST_SECONDS}")  # fmt: skip
    unit = UnitCommit(
        number=UNIT["number"], hashes=bytes(16), input_hashes=b"", checksum=None, seconds=5000.0
    )
    with closing(Ledger(path)) as ledger:
        ledger.check()
        assert ledger.samples.groups(5)[0]["left_high"] == 2 * LARGEST
        ledger.units.commit_batch(1, 2, [unit], {"bytes_committed": 5})
        assert ledger.units.all()[0]["seconds"] == MOST_SECONDS


@pytest.mark.parametrize("column", ["run.output", "run.config_path", "sources.folder"])
def test_a_path_is_one_that_the_system_accepts(tmp_path: Path, column: str) -> None:
    table, name = column.split(".")
    path = altered(tmp_path, "INSERT INTO sources (number, model, kind, folder, identity) "
                             "VALUES (0, 'm', 'local', 'm', '{\"model\": \"m\"}')")  # fmt: skip
    change(path, f"UPDATE {table} SET {name} = ?", ["a\0b"])
    with closing(Ledger(path)) as ledger, pytest.raises(InvalidLedger, match=rf"{table}\.{name}"):
        ledger.check()


LOCAL_ROWS = {
    "steps": {"key": "0" * 32, "pieces": 1, "checksum": "1" * 32},
    "companions": {"name": "config.json", "nbytes": 0, "checksum": "1" * 32},
    "downloads": {"path": "/blob", "repo": "a/b", "name": "f", "nbytes": 0, "inode": 1, "at": TIME},
}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("steps.key", "0" * 31),
        ("steps.pieces", 0),
        ("steps.checksum", None),
        ("companions.name", "../config.json"),
        ("companions.nbytes", -1),
        ("companions.checksum", "g" * 32),
        ("downloads.path", "/blob\0"),
        ("downloads.repo", None),
        ("downloads.name", None),
        ("downloads.nbytes", -1),
        ("downloads.inode", "one"),
        ("downloads.at", "now"),
    ],
)
def test_what_concerns_this_machine_alone_is_checked_as_well(
    tmp_path: Path, column: str, value: object
) -> None:
    table, name = column.split(".")
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.fill({key: [row] for key, row in LOCAL_ROWS.items()})
        ledger.check()
        assert ledger.steps.done() == {"0" * 32: (1, "1" * 32)}
        change(tmp_path / "ledger.db", f"UPDATE {table} SET {name} = ?", [value])
        with pytest.raises(InvalidLedger, match=rf"its {table}\.{name} has the invalid value"):
            ledger.check_rows()


def test_a_ledger_can_be_put_into_one_file(tmp_path: Path) -> None:
    with closing(make(tmp_path / "ledger.db")) as ledger:
        assert (tmp_path / "ledger.db-wal").exists()
        ledger.use_one_file()
        assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]
        assert query(tmp_path / "ledger.db", "PRAGMA journal_mode") == [{"journal_mode": "delete"}]
