"""Imports a ledger from a mirror. Anybody may have written it.

Only values of declared columns are used, each of which its validator accepts (`tables`). No
trigger, view, index or default of the untrusted database ever runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic

import xxhash

from resumerge.ledger.connection import Row
from resumerge.ledger.ledger import Ledger
from resumerge.ledger.tables import TABLES

LARGEST_SNAPSHOT = 1 << 28
"""Bytes. A hundred thousand tensors and a day's samples take a quarter of it."""

SECONDS = 120.0
"""Reading a database of that size takes two. One that is made to take for ever is refused."""

_HASH = 16


class InvalidLedger(Exception):
    """It is not the ledger of a run, or contradicts itself."""


def import_ledger(untrusted: Path, ledger: Path) -> None:
    """Make a ledger from what an untrusted one says of its run.

    The columns that belong to the machine that wrote it are left out.

    Args:
        untrusted: a file; it is only read.
        ledger: does not exist yet. Where `InvalidLedger` is raised, it is not created.

    Raises:
        InvalidLedger: with the reason.
    """
    try:
        tables = _tables(untrusted)
    except (sqlite3.Error, ValueError, OverflowError, RecursionError) as error:
        raise InvalidLedger(f"it cannot be read as a ledger: {error}") from error
    _check_agreement(tables)
    with closing(Ledger.create(ledger)) as created:
        created.fill(tables)


def _tables(untrusted: Path) -> dict[str, list[Row]]:
    if untrusted.stat().st_size > LARGEST_SNAPSHOT:
        raise InvalidLedger("it is larger than a ledger can be")
    uri = f"{untrusted.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as db:
        deadline = monotonic() + SECONDS
        db.set_progress_handler(lambda: monotonic() > deadline, 10_000)
        db.row_factory = sqlite3.Row
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
            db.execute(f"PRAGMA {pragma}")
        _check_schema(db)
        found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise InvalidLedger(f"it is damaged: {found}")
        return {name: list(_rows(db, name)) for name in TABLES if TABLES[name].imported}


def _check_schema(db: sqlite3.Connection) -> None:
    """Refuse what could compute: views, triggers, expressions in indexes, generated columns."""
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
        automatic = kind == "index" and sql is None  # of a primary key
        if not automatic and not (kind == "table" and _TABLE.fullmatch(sql)):
            raise InvalidLedger(f"it has a {kind} {str(name)[:60]!r} that no ledger has")
    for name, table in TABLES.items():
        columns = list(db.execute(f'PRAGMA table_xinfo("{name}")'))
        if not columns and table.required:
            raise InvalidLedger(f"it has no table {name!r}: it is not the ledger of a run")
        if any(column["hidden"] for column in columns):
            raise InvalidLedger(f"its table {name!r} has columns that compute")


def _rows(db: sqlite3.Connection, table: str) -> Iterator[Row]:
    wanted = TABLES[table].imported
    there = {column["name"] for column in db.execute(f'PRAGMA table_xinfo("{table}")')}
    if not there:
        return
    known = [name for name in wanted if name in there]
    listed = ", ".join(f'"{name}"' for name in known)
    for row in db.execute(f'SELECT {listed} FROM "{table}" ORDER BY 1'):
        values = {name: row[name] for name in known}
        for name, valid in wanted.items():
            if not valid(values.get(name)):
                raise InvalidLedger(f"its {table}.{name} says {str(values.get(name))[:60]!r}")
        yield values


def _check_agreement(tables: Mapping[str, list[Row]]) -> None:
    """Refuse rows that contradict each other."""
    for name, rows in tables.items():
        if len({row[TABLES[name].columns[0].name] for row in rows}) < len(rows):
            raise InvalidLedger(f"two rows of its {name} have the same key")
    runs, shards, units = tables["run"], tables["shards"], tables["units"]
    if len(runs) != 1:
        raise InvalidLedger(f"it holds {len(runs)} runs")
    parts = json.dumps(json.loads(runs[0]["fingerprint_parts"]), sort_keys=True)
    if hashlib.sha256(parts.encode()).hexdigest() != runs[0]["fingerprint"]:
        raise InvalidLedger("its fingerprint is not that of its parts")
    for name in ("sources", "shards", "units"):
        if [row["number"] for row in tables[name]] != list(range(len(tables[name]))):
            raise InvalidLedger(f"its {name} are not numbered one after the other")
    if len({row["name"] for row in shards}) < len(shards):
        raise InvalidLedger("two of its shards have one name")
    sealed = {row["number"] for row in shards if row["state"] == "sealed"}
    for unit in units:
        if unit["shard"] >= len(shards):
            raise InvalidLedger(f"it has no shard {unit['shard']}")
        if unit["offset"] + unit["nbytes"] > shards[unit["shard"]]["nbytes"]:
            raise InvalidLedger(f"{unit['name'][:60]!r} is outside of its shard")
        _check_progress(unit)
        if unit["checksum"] is None and unit["shard"] in sealed:
            raise InvalidLedger(f"{unit['name'][:60]!r} is missing in a shard that is sealed")
    sizes = {row["name"]: row["nbytes"] for row in shards}
    for row in tables["mirrored"]:
        if sizes.get(row["name"], row["nbytes"]) != row["nbytes"]:
            raise InvalidLedger(f"{row['name']!r} has another size in the mirror")


def _check_progress(unit: Row) -> None:
    hashes = unit["block_hashes"] or b""
    done = unit["committed_blocks"]
    whole = done == unit["blocks"]
    checksum = xxhash.xxh3_128_hexdigest(hashes) if whole else None
    state = "committed" if whole else "pending"
    if (len(hashes), unit["checksum"], unit["state"]) != (_HASH * done, checksum, state):
        raise InvalidLedger(f"what it says of {unit['name'][:60]!r} does not agree with itself")


_NAME = r'(?:"\w+"|\w+)'
_COLUMN = rf"{_NAME}(?: (?:TEXT|INTEGER|REAL|BLOB))?(?: PRIMARY KEY)?"
_COLUMN += rf"(?: REFERENCES {_NAME}\({_NAME}\))?"
_TABLE = re.compile(rf"CREATE TABLE {_NAME}\s*\(\s*{_COLUMN}(?:\s*,\s*{_COLUMN})*\s*\)", re.ASCII)
"""A table as `schema` makes it, with nothing that could be evaluated."""
