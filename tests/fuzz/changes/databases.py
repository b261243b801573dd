"""Changes of an SQLite database: values of other types, rows, columns and tables that differ."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.changes.trees import NUMBERS, TEXTS, changed_json

_LARGEST = 2**63


def change_database(draw: Random, path: Path) -> None:
    """Change a database's values, rows or schema, or now and then its bytes."""
    if draw.random() < 0.15:
        return put_something(draw, path, lambda: changed_bytes(draw, path.read_bytes()))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            # Not each can be done: a number is a key, a table is the last of its columns.
            with suppress(sqlite3.Error), db:
                draw.choices(_CHANGES, _WEIGHTS)[0](draw, db)
    return None


def _other_value(draw: Random, db: sqlite3.Connection) -> None:
    table, columns, rows = _table(draw, db)
    column = draw.choice(columns)
    where = "" if draw.random() < 0.2 else f" WHERE rowid = {draw.choice(rows)}"
    row = db.execute(f"SELECT {column} FROM {table} LIMIT 1 OFFSET {draw.randrange(len(rows))}")
    value = _other(draw, row.fetchone()[0])
    if isinstance(value, bytes) and draw.random() < 0.3:  # text that is not UTF-8
        db.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT){where}", [value])
    else:
        db.execute(f"UPDATE {table} SET {column} = ?{where}", [value])


def _other_rows(draw: Random, db: sqlite3.Connection) -> None:
    table, columns, rows = _table(draw, db)
    if draw.random() < 0.5:
        where = "" if draw.random() < 0.3 else f" WHERE rowid = {draw.choice(rows)}"
        db.execute(f"DELETE FROM {table}{where}")
    else:
        key = draw.choice(("NULL", "'x'", "-1", "99", str(2**62)))
        rest = "".join(f", {column}" for column in columns[1:])
        db.execute(f"INSERT INTO {table} SELECT {key}{rest} FROM {table} LIMIT 1")


def _other_schema(draw: Random, db: sqlite3.Connection) -> None:
    table, columns, _ = _table(draw, db)
    column = draw.choice(columns)
    db.execute(
        draw.choice(
            (
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} DROP COLUMN {column}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
                f"ALTER TABLE {table} RENAME TO other",
                f"ALTER TABLE {table} ADD COLUMN other",
                f"CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END",
                f"CREATE UNIQUE INDEX i ON {table} ({column})",
                f"PRAGMA user_version = {draw.choice((-1, 1, 2**31 - 1))}",
                "PRAGMA encoding = 'UTF-16'",
                "PRAGMA journal_mode = WAL",
            )
        )
    )


_CHANGES: tuple[Callable[[Random, sqlite3.Connection], None], ...] = (
    _other_value,
    _other_rows,
    _other_schema,
)
_WEIGHTS = (8, 1, 1)


def _table(draw: Random, db: sqlite3.Connection) -> tuple[str, list[str], list[int]]:
    """Return a table that has rows, its columns, and the numbers of its rows."""
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in draw.sample(sorted(names), len(names)):
        rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]
        if rows:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            return table, columns, rows
    raise sqlite3.DataError("there are no rows")


def _other(draw: Random, value: Any) -> Any:
    """Return what replaces a value."""
    if draw.random() < 0.4:
        with suppress(ValueError, TypeError, RecursionError):
            return changed_json(draw, json.loads(value)).decode(errors="replace")
    if isinstance(value, bytes) and draw.random() < 0.6:
        return changed_bytes(draw, value)
    if isinstance(value, int) and draw.random() < 0.4:
        return max(-_LARGEST, min(_LARGEST - 1, draw.choice((value + 1, value - 1, -value))))
    blobs, near = (b"", b"\xff\xfe", b"x" * 100_000), (str(value)[:-1], str(value) * 2)
    chosen = draw.choice((*NUMBERS, *TEXTS, *blobs, *near, None))
    if isinstance(chosen, int):
        return max(-_LARGEST, min(_LARGEST - 1, chosen))
    if isinstance(chosen, str):
        return chosen.encode(errors="replace").decode()
    return chosen
