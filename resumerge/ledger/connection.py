"""The open SQLite file of a ledger. Only ledger/ speaks SQL; other packages call named methods."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumerge.ledger.database import Database

BUSY_SECONDS = 20.0

Row = dict[str, Any]
"""One row of a table, by column."""


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Connection:
    """A connection that several threads may use; every write is one transaction.

    A transaction that has returned survives a power cut: the write-ahead log is synced to disk
    (``synchronous=FULL``).
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open a ledger.

        Args:
            read_only: leave the file and its journal mode as they are.

        Raises:
            sqlite3.DatabaseError: the file is not a database, or is damaged.
        """
        self.path = path
        self._lock = threading.RLock()
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=BUSY_SECONDS)
        self.db = Database(connection)
        if read_only:
            return
        try:
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self.db.conn.close()

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """Commit everything inside at once, or nothing. Transactions nest."""
        with self._lock, self.db.atomic():
            yield self.db

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query."""
        with self._lock:
            return list(self.db.query(sql, params))
