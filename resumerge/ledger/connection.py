"""The open SQLite file of a ledger. Only ledger/ uses its SQL; other rooms call named methods.

sqlite-utils creates the tables, and reads and writes rows. This file adds the features that
sqlite-utils lacks: transactions that wait for other writers, durable commits, use by several
threads, and changes of many rows by one statement.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumerge.foreign_files import UnfitFile, check_regular
from resumerge.ledger.database import Table, open_database
from resumerge.ledger.schema_check import check_schema, create_missing, read_missing_as_null
from resumerge.ledger.validity import check_values, checked

JOURNALS = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite writes beside a database."""

BUSY_SECONDS = 20.0
"""The most seconds that a write waits for another process to finish writing."""

Row = dict[str, Any]
"""A row of a table, by column."""


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Connection:
    """A connection to a ledger that several threads may use; every write is one transaction.

    A committed transaction survives a power cut: SQLite syncs the write-ahead log to disk
    (``synchronous=FULL``).

    Args:
        path: the ledger, which is created if it does not exist.
        read_only: whether to leave the file and its journal mode unchanged. Declared columns that
            the file lacks are then read as null.

    Raises:
        sqlite3.DatabaseError: the file is not a database, is damaged, or its schema is not a
            ledger's.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        check_files(path)
        self.path = path
        self._lock = threading.RLock()
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        self._db = open_database(
            sqlite3.connect(
                uri, uri=True, check_same_thread=False, timeout=BUSY_SECONDS, isolation_level=None
            )
        )
        try:
            missing_columns = check_schema(self._db)
            if read_only:
                read_missing_as_null(self._db, missing_columns)
                return
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            # On macOS, fsync leaves data in the disk's cache. Elsewhere these have no effect.
            self._db.execute("PRAGMA fullfsync=ON")
            self._db.execute("PRAGMA checkpoint_fullfsync=ON")
        except BaseException:
            self._db.close()
            raise

    def use_one_file(self) -> None:
        """Move all data into the ledger's file, and remove the write-ahead log beside it."""
        with self._lock:
            self._db.execute("PRAGMA journal_mode=DELETE")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def check(self) -> None:
        """Run SQLite's integrity check, which reads the whole file.

        Raises:
            sqlite3.DatabaseError: the file is damaged.
        """
        with self._lock:
            [verdict] = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    def create_missing(self) -> None:
        """Create the declared tables and columns that the file lacks."""
        with self.transaction():
            create_missing(self._db)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes inside the block, or none. A nested block joins the outer transaction.

        The transaction waits for other writers when it begins. A transaction of sqlite-utils begins
        with a read, and fails at its first change if another process has written in between.
        """
        with self._lock:
            if self._db.conn.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            with self._db.conn:  # commits, or rolls back
                yield

    @contextmanager
    def consistent_read(self) -> Iterator[None]:
        """Read one consistent state inside the block, even if other processes write meanwhile."""
        with self._lock, self._db.atomic():
            yield

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query."""
        with self._lock:
            # `Database.query` opens a savepoint, which fails if a signal raises inside it.
            cursor = self._db.execute(sql, params)
            column_names = [column[0] for column in cursor.description]
            return [dict(zip(column_names, row)) for row in cursor]

    def read(
        self,
        table: str,
        columns: Sequence[str] = (),
        where: str | None = None,
        args: Sequence[Any] = (),
        *,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> list[Row]:
        """Return rows of a table, after checking every value.

        Args:
            table: the name of a table in `TABLES`.
            columns: the columns to read; by default all.
            where: a condition in SQL with question marks for `args`; by default all rows are read.
            args: the values for the question marks in `where`, in their order.
            order_by: the columns that order the rows, in SQL.
            limit: the most rows to return; by default all.

        Raises:
            InvalidLedger: a value is not valid in its column.
        """
        selected_columns = ", ".join(f'"{name}"' for name in columns) or "*"
        with self._lock:
            rows = list(
                self._db.table(table).rows_where(where, args, order_by, selected_columns, limit)
            )
        check_values(table, rows)
        return rows

    def stream(self, table: str, order_by: str) -> Iterator[Row]:
        """Yield all rows of a table, checked as by `read`, without holding all in memory."""
        with self._lock:
            yield from checked(table, self._db.table(table).rows_where(order_by=order_by))

    def insert(self, table: str, row: Row, *, replace: bool = False) -> int:
        """Insert a row.

        Args:
            table: the name of a table that exists in the file.
            row: the values by column; columns that are left out become null.
            replace: whether the row replaces an existing row with the same key.

        Returns:
            the row's id.
        """
        with self.transaction():
            row_id = self._existing(table).insert(row, replace=replace).last_rowid
        assert row_id is not None
        return row_id

    def insert_all(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows that all have the same columns."""
        with self.transaction():
            self._existing(table).insert_all(map(dict, rows))

    def update(self, table: str, key: int, values: Row) -> None:
        """Set columns of the row with this primary key."""
        with self.transaction():
            self._db.table(table).update(key, values)

    def update_where(
        self, table: str, values: Mapping[str, Any], where: str = "TRUE", args: Sequence[Any] = ()
    ) -> None:
        """Set columns of all rows that meet a condition in SQL."""
        assignments = ", ".join(f'"{name}" = ?' for name in values)
        self.change(f'UPDATE "{table}" SET {assignments} WHERE {where}', [*values.values(), *args])

    def delete(self, table: str, where: str | None = None, args: Sequence[Any] = ()) -> None:
        """Delete the rows that meet a condition in SQL; without a condition, all rows."""
        with self.transaction():
            self._db.table(table).delete_where(where, args)

    def change(self, sql: str, *rows: Sequence[Any]) -> None:
        """Execute a statement once for each row of parameters, in one transaction."""
        with self.transaction():
            self._db.conn.executemany(sql, rows)

    def _existing(self, table: str) -> Table:
        """Return a table, which must exist: sqlite-utils would create it with guessed columns."""
        existing_table = self._db.table(table)
        if not existing_table.exists():
            raise sqlite3.OperationalError(f"no such table: {table}")
        return existing_table


def check_files(path: Path) -> None:
    """Check that a database and the files that SQLite writes beside it are regular files.

    Opening a pipe would block until another process writes to it. Missing files are accepted.

    Raises:
        sqlite3.DatabaseError: the database is not a regular file.
        sqlite3.OperationalError: a file beside the database is not a regular file.
    """
    for suffix in ("", *JOURNALS):
        try:
            check_regular(Path(f"{path}{suffix}"))
        except UnfitFile as error:
            error_type = sqlite3.OperationalError if suffix else sqlite3.DatabaseError
            raise error_type(f"{path.name}{suffix} is {error}") from None
        except OSError:
            continue  # if the file exists, SQLite raises its own error when it opens the file
