"""A ledger that somebody else wrote, copied value by value into one of ours.

Nothing of the stranger's database is used but the values of known columns of known tables, each of
which has to be of its kind: no trigger, view, index or default of it ever runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import Any

import xxhash

from resumerge.ledger import Ledger
from resumerge.mirror.stores.base import METADATA
from resumerge.options import are_kept_options

LARGEST_SNAPSHOT = 1 << 28
"""Bytes. A hundred thousand tensors and a day's samples take a quarter of it."""

SECONDS = 120.0
"""Reading a database of that size takes two; one that is made to take for ever is given up."""

LARGEST = 1 << 62
_HASH = 16

Check = Callable[[Any], bool]


class InvalidLedger(Exception):
    """It is not the ledger of a run, or says what cannot be."""


def import_ledger(strange: Path, ours: Path) -> None:
    """Make a ledger with what a stranger's says of its run.

    What belongs to the machine that wrote it is left out: its downloads, and its files beside the
    shards.

    Args:
        strange: a file; it is only read.
        ours: does not exist yet; where `InvalidLedger` is raised, not after either.

    Raises:
        Unfit: with why.
    """
    try:
        tables = _tables(strange)
    except (sqlite3.Error, ValueError, OverflowError, RecursionError) as error:
        raise InvalidLedger(f"it cannot be read as a ledger: {error}") from error
    _compare(tables)
    ledger = Ledger.create(ours)
    try:
        with ledger.transaction() as db:
            for name, rows in tables.items():
                db.table(name).insert_all(rows)
    finally:
        ledger.close()


def is_safe_name(name: object) -> bool:
    """Whether this can be the name of a file of a model: it stays inside of any folder."""
    if not isinstance(name, str) or not name.isprintable() or "\\" in name or len(name) > 1000:
        return False
    path = PurePosixPath(name)
    parts = path.parts
    return (
        bool(parts)
        and str(path) == name
        and not path.is_absolute()
        and all(part != ".." and len(part.encode(errors="replace")) <= 200 for part in parts)
        and parts[0] != METADATA
    )


def is_folder_name(name: object) -> bool:
    """Whether a folder can be made by this name in the working folder, and be seen there."""
    return is_safe_name(name) and "/" not in str(name) and not str(name).startswith(".")


def _tables(strange: Path) -> dict[str, list[dict[str, Any]]]:
    if strange.stat().st_size > LARGEST_SNAPSHOT:
        raise InvalidLedger("it is larger than a ledger can be")
    uri = f"{strange.absolute().as_uri()}?mode=ro&immutable=1"
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
        return {name: list(_rows(db, name)) for name in _COLUMNS}


def _check_schema(db: sqlite3.Connection) -> None:
    """Nothing in it may compute."""
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
        plain = {"table": _TABLE, "index": _INDEX}.get(kind)
        if plain is None or (sql is not None and not plain.fullmatch(sql)):
            raise InvalidLedger(f"it has a {kind} {str(name)[:60]!r} that no ledger has")
    for name in _COLUMNS:
        columns = list(db.execute(f'PRAGMA table_xinfo("{name}")'))
        if not columns and name in _NEEDED:
            raise InvalidLedger(f"it has no table {name!r}: it is not the ledger of a run")
        if any(column["hidden"] for column in columns):
            raise InvalidLedger(f"its table {name!r} has columns that compute")


def _rows(db: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    wanted = _COLUMNS[table]
    there = {column["name"] for column in db.execute(f'PRAGMA table_xinfo("{table}")')}
    if not there:
        return
    known = [name for name in wanted if name in there]
    listed = ", ".join(f'"{name}"' for name in known)
    for row in db.execute(f'SELECT {listed} FROM "{table}" ORDER BY 1'):
        values = {name: row[name] for name in known}
        for name, check in wanted.items():
            if not check(values.get(name)):
                raise InvalidLedger(f"its {table}.{name} says {str(values.get(name))[:60]!r}")
        yield values


def _compare(tables: Mapping[str, list[dict[str, Any]]]) -> None:
    """What one row says must agree with what others say."""
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


def _check_progress(unit: Mapping[str, Any]) -> None:
    hashes = unit["block_hashes"] or b""
    done = unit["committed_blocks"]
    whole = done == unit["blocks"]
    checksum = xxhash.xxh3_128_hexdigest(hashes) if whole else None
    state = "committed" if whole else "pending"
    if (len(hashes), unit["checksum"], unit["state"]) != (_HASH * done, checksum, state):
        raise InvalidLedger(f"what it says of {unit['name'][:60]!r} does not agree with itself")


# What a value may be


def _text(most: int = 4096) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= most


def _like(pattern: str) -> Check:
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _number(least: int = 0) -> Check:
    return lambda value: isinstance(value, int) and least <= value <= LARGEST


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value < 1e12


def _json(kind: type) -> Check:
    def fits(value: Any) -> bool:
        try:
            return isinstance(value, str) and isinstance(json.loads(value), kind)
        except (ValueError, RecursionError):
            return False

    return fits


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _options(value: Any) -> bool:
    """The options that a run began with, as far as they are taken up again."""
    return _json(dict)(value) and are_kept_options(json.loads(value))


def _shape(value: Any) -> bool:
    return _json(list)(value) and all(isinstance(n, int) and n >= 0 for n in json.loads(value))


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


_XXH3, _SHA256 = _like("[0-9a-f]{32}"), _like("[0-9a-f]{64}")
_LONG = _text(1 << 24)
_COUNT = _or_none(_number())

_COLUMNS: dict[str, dict[str, Check]] = {
    "run": {
        "id": _like("[A-Za-z0-9_-]{1,100}"),
        "created": _time,
        "config_path": _text(),
        "config_text": _LONG,
        "output": _text(),
        "fingerprint": _SHA256,
        "fingerprint_parts": _json(dict),
        "options": _options,
        "versions": _json(dict),
        "host": _or_none(_text(300)),
        "state": _like("planned|running|interrupted|failed|done"),
    },
    "sources": {
        "number": _number(),
        "model": _text(),
        "kind": _like("local|hub|lora"),
        "revision": _or_none(_like("[0-9a-f]{40}")),
        "folder": _text(),
        "identity": _json(dict),
    },
    "shards": {
        "number": _number(),
        "name": _like(r"model(-[0-9]{5}-of-[0-9]{5})?\.safetensors"),
        "nbytes": _number(),
        "header_bytes": _number(),
        "header_checksum": _XXH3,
        "state": _like("open|sealed"),
        "sealed_at": _or_none(_time),
    },
    "units": {
        "number": _number(),
        "name": _text(),
        "shard": _number(),
        "offset": _number(),
        "nbytes": _number(),
        "dtype": _like("[A-Z0-9_]{1,20}"),
        "shape": _shape,
        "block_elements": _number(1),
        "expression": _json(dict),
        "blocks": _number(1),
        "state": _like("pending|committed"),
        "committed_blocks": _number(),
        "block_hashes": lambda value: value is None or isinstance(value, bytes),
        "checksum": _or_none(_XXH3),
        "attempt": _COUNT,
        "batch": _COUNT,
        "seconds": _or_none(_seconds),
    },
    "mirrored": {
        "name": is_safe_name,
        "nbytes": _number(),
        "sha256": _SHA256,
        "at": _time,
    },
    "attempts": {
        "n": _number(1),
        "pid": _number(),
        "host": _text(300),
        "boot_id": _or_none(_text(100)),
        "started": _time,
        "ended": _or_none(_time),
        "last_seen": _time,
        "outcome": _or_none(_like("done|interrupted|error|oom|killed")),
        "peak_rss": _COUNT,
        "batches": _COUNT,
        "batch_bytes": _COUNT,
        "bytes_committed": _COUNT,
        "units_committed": _number(),
        "seconds": _or_none(_seconds),
        "merging_seconds": _or_none(_seconds),
        "budget": _COUNT,
    },
    "events": {
        "id": _number(),
        "at": _time,
        "attempt": _COUNT,
        "kind": _like("[a-z0-9_]{1,100}"),
        "data": _json(dict),
    },
    "samples": {
        "id": _number(),
        "at": _time,
        "attempt": _COUNT,
        "rss": _number(),
        "available": _number(),
        "budget": _number(),
        "batch_bytes": _number(),
        "bytes_done": _number(),
    },
}
"""Every column that is taken over, by table, and what it may hold. The first one sorts the rows."""

_NEEDED = ("run", "sources", "shards", "units", "mirrored")

_QUOTED = r'(?:"\w+"|\[\w+\]|\w+)'
_COLUMN = rf"{_QUOTED}(?: (?:TEXT|INTEGER|REAL|FLOAT|BLOB))?(?: PRIMARY KEY)?"
_COLUMN += rf"(?: REFERENCES {_QUOTED}\({_QUOTED}\))?"
_TABLE = re.compile(rf"CREATE TABLE {_QUOTED}\s*\(\s*{_COLUMN}(?:\s*,\s*{_COLUMN})*\s*\)", re.ASCII)
_INDEX = re.compile(
    rf"CREATE (?:UNIQUE )?INDEX {_QUOTED}\s+ON {_QUOTED}\s*\({_QUOTED}(?:,\s*{_QUOTED})*\)",
    re.ASCII,
)
"""Tables and indexes as sqlite-utils makes them, and nothing that could be evaluated."""
