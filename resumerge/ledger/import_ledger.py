"""The import of a ledger from a mirror, which anybody may have written.

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
"""The largest snapshot in bytes. A hundred thousand tensors and a day's samples take a quarter."""

SECONDS = 120.0
"""The most seconds of an import, so that no database can make it run for ever.

Reading a database of the largest size takes two seconds.
"""


def import_ledger(untrusted: Path, ledger: Path) -> None:
    """Make a new ledger with the valid rows of an untrusted one.

    Columns that belong to the machine that wrote the ledger are left out.

    Args:
        untrusted: the untrusted file, which is only read.
        ledger: the new file, which does not exist yet. If `InvalidLedger` is raised, it is not
            created.

    Raises:
        InvalidLedger: a table, a column or a value is not one of a ledger; the error gives the
            reason.
    """
    try:
        tables = _tables(untrusted)
    except InvalidLedger:
        raise
    except (sqlite3.Error, ValueError, OverflowError, RecursionError) as error:
        raise InvalidLedger(f"it cannot be read as a ledger: {error}") from error
    check_agreement(tables, tables["units"])
    with closing(Ledger.create(ledger)) as created:
        created.fill(tables)


def _tables(untrusted: Path) -> dict[str, list[Row]]:
    if untrusted.stat().st_size > LARGEST_SNAPSHOT:
        raise InvalidLedger("it is larger than the limit for a ledger")
    uri = f"{untrusted.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(open_database(sqlite3.connect(uri, uri=True))) as db:
        deadline = monotonic() + SECONDS
        db.conn.set_progress_handler(lambda: monotonic() > deadline, 10_000)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
            db.execute(f"PRAGMA {pragma}")
        missing = check_schema(db)
        for name, table in TABLES.items():
            if table.required and lacks_table(name, missing[name]):
                raise InvalidLedger(f"it has no table {name!r}: it is not the ledger of a run")
        read_missing_as_null(db, missing)
        verdict = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if verdict != "ok":
            raise InvalidLedger(f"it is damaged: {verdict}")
        return {
            name: list(in_sequence(name, _rows(db, name)))
            for name in TABLES
            if TABLES[name].imported
        }


def _rows(db: Database, table: str) -> Iterator[Row]:
    wanted = TABLES[table].imported
    rows = db.table(table).rows_where(
        select=", ".join(f'"{name}"' for name in wanted), order_by="1"
    )
    return checked(table, rows, wanted)
