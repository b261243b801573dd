"""The open SQLite file of a ledger. Only ledger/ uses SQL; other packages call named methods.

This is `sqlite3` of the standard library, not sqlite-utils: that loads pandas wherever it is
installed, as on Colab, which adds 72 MB to a process that is promised to need 64 MB.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from resumerge.foreign_files import UnfitFile, check_regular
from resumerge.ledger.schema import check_schema, create_missing, read_missing_as_null
from resumerge.ledger.validity import check_values

JOURNALS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""

BUSY_SECONDS = 20.0
"""How long a write waits while another process writes."""

_STREAMED = 1000
"""Rows."""

Row = dict[str, Any]
"""One row of a table, by column."""


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Connection:
    """A connection that several threads may use; every write is one transaction.

    A transaction that has returned survives a power cut: SQLite syncs the write-ahead log to disk
    (``synchronous=FULL``).
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open a ledger.

        Args:
            read_only: leave the file and its journal mode as they are. What it lacks of the
                declared columns is null.

        Raises:
            sqlite3.DatabaseError: the file is not a database, is damaged, or has another schema.
        """
        check_files(path)
        self.path = path
        self._lock = threading.RLock()
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        self._connection = sqlite3.connect(
            uri, uri=True, check_same_thread=False, timeout=BUSY_SECONDS, isolation_level=None
        )
        self._connection.row_factory = _by_column
        try:
            missing = check_schema(self._connection)
            if read_only:
                read_missing_as_null(self._connection, missing)
                return
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            self._connection.close()
            raise

    def use_one_file(self) -> None:
        """Put everything into the one file, without a write-ahead log beside it."""
        self.rows("PRAGMA journal_mode=DELETE")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def check(self) -> None:
        """Read the whole file.

        Raises:
            sqlite3.DatabaseError: it is damaged.
        """
        [found] = self.rows("PRAGMA integrity_check(1)")
        if found["integrity_check"] != "ok":
            raise sqlite3.DatabaseError(found["integrity_check"])

    def create_missing(self) -> None:
        """Create what the file lacks of the declared tables."""
        with self.transaction():
            create_missing(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside at once, or nothing. An inner one is part of the outer one."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:  # commits, or rolls back
                yield

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Read everything inside as it is at one moment, whatever other processes write."""
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query."""
        with self._lock:
            return self._connection.execute(sql, params).fetchall()

    def read(
        self,
        table: str,
        columns: Sequence[str] = (),
        rest: str = "",
        params: Sequence[Any] = (),
    ) -> list[Row]:
        """Rows of a table, of which every value is one that its column may hold.

        Args:
            columns: by default all.
            rest: of the query, from WHERE or ORDER BY on.

        Raises:
            InvalidLedger: a value cannot be.
        """
        rows = self.rows(_query(table, columns, rest), params)
        check_values(table, rows)
        return rows

    def stream(self, table: str, rest: str = "") -> Iterator[Row]:
        """All rows of a table, checked as by `read`, of which only some are in memory at once."""
        with self._lock:
            cursor = self._connection.execute(_query(table, (), rest))
            while rows := cursor.fetchmany(_STREAMED):
                check_values(table, rows)
                yield from rows

    def change(self, sql: str, *rows: Sequence[Any]) -> None:
        """Execute a statement for each of the rows of parameters, in one transaction."""
        with self.transaction():
            self._connection.executemany(sql, rows)

    def insert(self, table: str, row: Mapping[str, Any], *, replace: bool = False) -> int:
        """Insert a row.

        Args:
            replace: a row that has the same key.

        Returns:
            Its row id.
        """
        with self.transaction():
            sql = _insertion(table, row, "INSERT OR REPLACE" if replace else "INSERT")
            row_id = self._connection.execute(sql, list(row.values())).lastrowid
        assert row_id is not None
        return row_id

    def insert_all(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows that all have the same columns."""
        remaining = iter(rows)
        if (first := next(remaining, None)) is not None:
            with self.transaction():
                values = ([row[name] for name in first] for row in chain([first], remaining))
                self._connection.executemany(_insertion(table, first, "INSERT"), values)

    def update(self, table: str, values: Mapping[str, Any], key: int | None = None) -> None:
        """Change columns of the row with that row id, or of all rows."""
        columns = ", ".join(f'"{name}" = ?' for name in values)
        only = "" if key is None else f" WHERE rowid = {key:d}"
        self.change(f"UPDATE {table} SET {columns}{only}", list(values.values()))


def check_files(path: Path) -> None:
    """Check that a database and the files that SQLite keeps beside it are files: opening a pipe
    would wait for its writer.

    Raises:
        sqlite3.DatabaseError: the database is something else.
        sqlite3.OperationalError: a file beside it is.
    """
    for suffix in ("", *JOURNALS):
        try:
            check_regular(Path(f"{path}{suffix}"))
        except UnfitFile as error:
            kind = sqlite3.OperationalError if suffix else sqlite3.DatabaseError
            raise kind(f"{path.name}{suffix} is {error}") from None
        except OSError:
            continue  # there is none, or SQLite says why it cannot be opened


def _by_column(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row)}


def _query(table: str, columns: Sequence[str], rest: str) -> str:
    return f"SELECT {', '.join(map(_quoted, columns)) or '*'} FROM {table} {rest}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _insertion(table: str, columns: Iterable[str], verb: str) -> str:
    names = [*map(_quoted, columns)]
    return f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
