"""The opening of a run's ledger, or of its snapshot if the ledger is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from resumerge.errors import refuse
from resumerge.ledger import (
    LEDGER_FILE,
    SNAPSHOT_FILE,
    Ledger,
    is_reconciled,
    restore_snapshot,
)
from resumerge.ledger.run_store import RECIPE_FILE
from resumerge.storage import Storage


def open_ledger(folder: Path, storage: Storage) -> tuple[Ledger, bool]:
    """Open a run's ledger for writing, and restore it from its snapshot if it is damaged.

    Returns:
        (ledger, whether every committed block has to be compared with its checksum). This is the
        case if the ledger was restored, now or earlier, and not compared with the shards since.

    Raises:
        InputError: ledger and snapshot are both damaged. Neither is changed.
        sqlite3.OperationalError: the disk is full or fails. The ledger may be intact.
    """
    ledger_path = folder / LEDGER_FILE
    try:
        ledger = _open_intact(ledger_path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        try:
            restore_snapshot(folder, storage)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            raise refuse(
                "The ledger and its snapshot are both damaged",
                where=str(ledger_path),
                found=str(error),
                fix=f"start over in a new or empty folder: `resumerge run {folder / RECIPE_FILE} "
                "OUT`",
            ) from error
        ledger = _open_intact(ledger_path)
    return ledger, not is_reconciled(ledger)


def read_ledger(folder: Path) -> Ledger:
    """Open a run's ledger read-only, or its snapshot if the ledger cannot be read.

    Raises:
        InputError: neither the ledger nor the snapshot can be read.
    """
    errors = []
    for name in (LEDGER_FILE, SNAPSHOT_FILE):
        try:
            ledger = Ledger(folder / name, read_only=True)
        except sqlite3.DatabaseError as error:
            errors.append(str(error))
            continue
        try:
            ledger.check_rows()
            return ledger
        except sqlite3.DatabaseError as error:
            errors.append(str(error))
        ledger.close()
    raise refuse(
        "Neither the ledger nor its snapshot can be read",
        where=str(folder),
        found="; ".join(dict.fromkeys(errors)),
        fix="change the permissions of these files, or resume the run, which repairs what it can",
    )


def _open_intact(path: Path) -> Ledger:
    if not path.exists():
        raise sqlite3.DatabaseError("the ledger is missing")
    ledger = Ledger(path)
    try:
        ledger.check()
    except BaseException:
        ledger.close()
        raise
    return ledger
