"""Rows in and out of a ledger, with the verbs of sqlite-utils.

Not sqlite-utils itself, which migrates the tables (`schema`): with what it imports it takes as long
to load as everything else that `resumerge status` does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

Row = Mapping[str, Any]


class Database:
    """A connection to a SQLite file."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn

    def execute(self, sql: str, params: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute one statement."""
        return self.conn.execute(sql, params)

    def query(self, sql: str, params: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """The rows of a query, as dictionaries."""
        cursor = self.conn.execute(sql, params)
        names = [column[0] for column in cursor.description]
        return (dict(zip(names, row)) for row in cursor)

    def table(self, name: str) -> Table:
        """A table, by a name of ours."""
        return Table(self.conn, name)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Everything inside is committed at once, or not at all; may be nested."""
        inner = self.conn.in_transaction
        self.conn.execute("SAVEPOINT inner" if inner else "BEGIN")
        try:
            yield
            self.conn.execute("RELEASE inner" if inner else "COMMIT")
        except BaseException:
            if self.conn.in_transaction:  # an error may have ended it already
                if inner:
                    self.conn.execute("ROLLBACK TO inner")
                self.conn.execute("RELEASE inner" if inner else "ROLLBACK")
            raise


class Table:
    """One table. Names of columns are ours, never a stranger's; values may be anybody's."""

    def __init__(self, conn: sqlite3.Connection, name: str) -> None:
        self._conn, self._name = conn, name

    def insert(self, row: Row) -> int:
        """Add a row; the number of its primary key, where that is a number."""
        number = self._conn.execute(self._insertion(row), list(row.values())).lastrowid
        assert number is not None
        return number

    def insert_all(self, rows: Iterable[Row]) -> None:
        """Add rows that all have the same columns."""
        left = iter(rows)
        if (first := next(left, None)) is not None:
            values = ([row[name] for name in first] for row in chain([first], left))
            self._conn.executemany(self._insertion(first), values)

    def update(self, number: int, changes: Row) -> None:
        """Change columns of the row with that number as its primary key."""
        columns = ", ".join(f'"{name}" = ?' for name in changes)
        sql = f'UPDATE "{self._name}" SET {columns} WHERE rowid = ?'
        self._conn.execute(sql, [*changes.values(), number])

    def upsert(self, row: Row, pk: str) -> None:
        """Add a row, or change the one with the same key."""
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in row if name != pk)
        sql = f'{self._insertion(row)} ON CONFLICT ("{pk}") DO UPDATE SET {changes}'
        self._conn.execute(sql, list(row.values()))

    def _insertion(self, columns: Iterable[str]) -> str:
        names = list(columns)
        listed = ", ".join(f'"{name}"' for name in names)
        return f'INSERT INTO "{self._name}" ({listed}) VALUES ({", ".join("?" * len(names))})'
