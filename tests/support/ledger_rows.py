"""Raw SQL on a ledger, for tests that look behind its methods or damage it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any


def query(ledger: Path, sql: str) -> list[dict[str, Any]]:
    """The rows of a query."""
    with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql)]


def change(ledger: Path, sql: str, *rows: Sequence[Any]) -> None:
    """Execute a statement, once or for each of the rows of parameters."""
    with closing(sqlite3.connect(ledger)) as db, db:
        db.executemany(sql, rows or [()])
