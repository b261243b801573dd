"""Promise: a ledger goes from one version to the next and back; its schema stays as it was made."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import xxhash
from ledger_rows import RUN, SHARD, UNIT, change, make, query

from resumerge.ledger import Ledger, UnitCommit, UnitMeasurements
from resumerge.ledger.import_ledger import import_ledger

UNTIL_NOVEMBER_2026 = """
CREATE TABLE run ("id" TEXT PRIMARY KEY, "created" TEXT, "config_path" TEXT, "config_text" TEXT, "output" TEXT, "fingerprint" TEXT, "fingerprint_parts" TEXT, "options" TEXT, "versions" TEXT, "host" TEXT, "state" TEXT, "mirror" TEXT);
CREATE TABLE sources ("number" INTEGER PRIMARY KEY, "model" TEXT, "kind" TEXT, "revision" TEXT, "folder" TEXT, "identity" TEXT, "stamps" TEXT, "content" TEXT);
CREATE TABLE shards ("number" INTEGER PRIMARY KEY, "name" TEXT, "nbytes" INTEGER, "header_bytes" INTEGER, "header_checksum" TEXT, "state" TEXT, "sealed_at" TEXT);
CREATE TABLE units ("number" INTEGER PRIMARY KEY, "name" TEXT, "shard" INTEGER REFERENCES "shards"("number"), "offset" INTEGER, "nbytes" INTEGER, "dtype" TEXT, "shape" TEXT, "block_elements" INTEGER, "expression" TEXT, "blocks" INTEGER, "state" TEXT, "committed_blocks" INTEGER, "block_hashes" BLOB, "input_hashes" BLOB, "checksum" TEXT, "attempt" INTEGER, "batch" INTEGER, "seconds" REAL);
CREATE TABLE mirrored ("name" TEXT PRIMARY KEY, "nbytes" INTEGER, "sha256" TEXT, "at" TEXT);
CREATE TABLE attempts ("n" INTEGER PRIMARY KEY, "pid" INTEGER, "host" TEXT, "boot_id" TEXT, "started" TEXT, "ended" TEXT, "last_seen" TEXT, "outcome" TEXT, "peak_rss" INTEGER, "batches" INTEGER, "batch_bytes" INTEGER, "bytes_committed" INTEGER, "units_committed" INTEGER, "seconds" REAL, "merging_seconds" REAL, "budget" INTEGER);
CREATE TABLE events ("id" INTEGER PRIMARY KEY, "at" TEXT, "attempt" INTEGER, "kind" TEXT, "data" TEXT);
CREATE TABLE samples ("id" INTEGER PRIMARY KEY, "at" TEXT, "attempt" INTEGER, "rss" INTEGER, "available" INTEGER, "budget" INTEGER, "batch_bytes" INTEGER, "bytes_done" INTEGER);
CREATE TABLE companions ("name" TEXT PRIMARY KEY, "nbytes" INTEGER, "checksum" TEXT);
CREATE TABLE steps ("key" TEXT PRIMARY KEY, "pieces" INTEGER, "checksum" TEXT);
CREATE TABLE downloads ("path" TEXT PRIMARY KEY, "repo" TEXT, "name" TEXT, "nbytes" INTEGER, "inode" INTEGER, "at" TEXT);
CREATE VIEW progress AS SELECT at, attempt, bytes_done, total.nbytes AS bytes_total, round(100.0 * bytes_done / total.nbytes, 1) AS percent, rss, budget, batch_bytes FROM samples, (SELECT sum(nbytes) AS nbytes FROM units) AS total
"""  # noqa: E501
"""The schema as SQLite has it in ledgers from before sqlite-utils made them."""

LATER_COLUMNS = {"units": ['"measurements" TEXT'], "shards": ['"copied" INTEGER']}
"""Columns that earlier versions do not know: they accept plain ones, and leave them alone."""

SCHEMA = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
LATER = r"CREATE TABLE \W?accounts\b"


def earlier(path: Path) -> Path:
    """Make a ledger of one tensor, as earlier versions made it."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(UNTIL_NOVEMBER_2026)
        for table, row in (("run", RUN), ("shards", SHARD), ("units", UNIT)):
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()])
    return path


def schema(path: Path) -> list[str]:
    """Return the SQL of the tables that earlier versions know; others do not matter to them."""
    found = [row["sql"] for row in query(path, SCHEMA)]
    return [sql for sql in found if not re.match(LATER, sql)]


def as_compared(sql: str) -> tuple[str, list[str]]:
    """Return what earlier versions compare: the name, and the definitions of columns they know."""
    found = re.fullmatch(r'CREATE TABLE "?(\w+)"?\s*\(\s*(.*?)\s*\)', sql, re.DOTALL)
    if found is None:
        return sql, []
    columns = re.split(r"\s*,\s*", found[2])
    return found[1], [column for column in columns if column not in LATER_COLUMNS.get(found[1], ())]


def test_a_run_is_resumed_with_its_ledger_as_it_was_made(tmp_path: Path) -> None:
    path = earlier(tmp_path / "ledger.db")
    before = list(map(as_compared, schema(path)))
    with closing(Ledger(path)) as ledger:
        ledger.check()
        number = ledger.attempts.start({"pid": 1, "host": "here", "boot_id": None})
        ledger.units.commit_batch(
            number,
            1,
            [UnitCommit(number=0, hashes=b"", input_hashes=b"", checksum=None, seconds=1.0)],
            {},
        )
        ledger.shards.seal(0)
        ledger.units.forget([0], "lost")
        ledger.set_mirror("/mirror")
        ledger.mirrored.record("config.json", 1, "0" * 64)
        ledger.set_state("interrupted")
        ledger.check()
        ledger.use_one_file()
    assert list(map(as_compared, schema(path))) == before, (
        "which is all that the version that made it accepts"
    )
    import_ledger(path, tmp_path / "imported.db")


def test_what_is_made_now_is_accepted_by_earlier_versions(tmp_path: Path) -> None:
    with closing(make(tmp_path / "ledger.db")) as ledger:
        ledger.use_one_file()
    earlier(tmp_path / "earlier.db")
    made = list(map(as_compared, schema(tmp_path / "ledger.db")))
    assert made == list(map(as_compared, schema(tmp_path / "earlier.db")))


def test_measurements_that_an_earlier_version_went_on_without_are_none(tmp_path: Path) -> None:
    """An earlier version commits blocks, or makes units pending, and leaves the column as it is."""
    path = tmp_path / "ledger.db"
    make(path).close()
    measured = UnitMeasurements.empty(["base", "math"]).plus([[0.0] * 16])
    change(path, "UPDATE units SET measurements = ?", [measured.as_json()])
    with closing(Ledger(path)) as ledger:
        ledger.check()
        assert ledger.units.progress()[0].measurements is None
        hashes = bytes(16)
        checksum = xxhash.xxh3_128_hexdigest(hashes)
        ledger.attempts.start({"pid": 1, "host": "here", "boot_id": None})
        ledger.units.commit_batch(
            1,
            1,
            [UnitCommit(number=0, hashes=hashes, input_hashes=b"", checksum=checksum, seconds=1.0)],
            {},
        )
        assert ledger.units.measurements() == []
        change(path, "UPDATE units SET measurements = ?", [measured.plus([[0.0] * 16]).as_json()])
        ledger.check()
        assert ledger.units.measurements() == []
        change(path, "UPDATE units SET measurements = ?", [measured.as_json()])
        [(row, found)] = ledger.units.measurements()
        assert (row["name"], found) == ("weight", measured)
    import_ledger(path, tmp_path / "imported.db")
