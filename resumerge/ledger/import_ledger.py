"""The import of a ledger from a mirror. It is untrusted: anybody may have written it.

Only values of declared columns are used, and only if the column's validator accepts them
(`tables`). No trigger, view, index or default of the untrusted database ever runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

from resumerge.ledger.connection import Row
from resumerge.ledger.database import Database, open_database
from resumerge.ledger.ledger import Ledger
from resumerge.ledger.schema_check import check_schema, lacks_table, read_missing_as_null
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validity import InvalidLedger, check_agreement, checked, in_sequence

LARGEST_SNAPSHOT = 1 << 28
"""The largest accepted snapshot in bytes: four times 100,000 tensors with the samples of a day."""

SECONDS = 120.0
"""The time limit of an import in seconds, which stops a query that a crafted file makes endless.

Reading a database of the largest accepted size takes two seconds.
"""


def import_ledger(untrusted: Path, ledger: Path) -> None:
    """Create a ledger with the rows of an untrusted one, after checking all of them.

    Columns with the validator `tables.STAYS` are not imported.

    Args:
        untrusted: the untrusted file, which is only read.
        ledger: the path of the new file. No file is created if `InvalidLedger` is raised.

    Raises:
        InvalidLedger: a table, column or value does not belong in a ledger. The error gives the
            reason.
    """
    try:
        tables = _tables(untrusted)
    except InvalidLedger:
        raise
    except (sqlite3.Error, ValueError, OverflowError, RecursionError) as error:
        raise InvalidLedger(f"it cannot be read as a ledger: {error}") from error
    check_agreement(tables, tables["units"])
    with closing(Ledger.create(ledger)) as new_ledger:
        new_ledger.fill(tables)


def _tables(untrusted: Path) -> dict[str, list[Row]]:
    if untrusted.stat().st_size > LARGEST_SNAPSHOT:
        raise InvalidLedger("it is larger than the limit for a ledger")
    uri = f"{untrusted.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(open_database(sqlite3.connect(uri, uri=True))) as db:
        deadline = monotonic() + SECONDS
        db.conn.set_progress_handler(lambda: monotonic() > deadline, 10_000)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
            db.execute(f"PRAGMA {pragma}")
        missing_columns = check_schema(db)
        for name, table in TABLES.items():
            if table.required and lacks_table(name, missing_columns[name]):
                raise InvalidLedger(f"it has no table {name!r}: it is not the ledger of a run")
        read_missing_as_null(db, missing_columns)
        verdict = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if verdict != "ok":
            raise InvalidLedger(f"it is damaged: {verdict}")
        return {
            name: list(in_sequence(name, _rows(db, name)))
            for name in TABLES
            if TABLES[name].imported
        }


def _rows(db: Database, table: str) -> Iterator[Row]:
    imported_columns = TABLES[table].imported
    rows = db.table(table).rows_where(
        select=", ".join(f'"{name}"' for name in imported_columns), order_by="1"
    )
    return checked(table, rows, imported_columns)
