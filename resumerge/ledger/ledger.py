"""One run's journal: what is planned, what is committed, and what happened on the way."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.ledger.connection import Row
from resumerge.ledger.schema import create_missing
from resumerge.ledger.units import UnitTables

LEDGER_FILE = "ledger.db"


class Ledger(UnitTables):
    """The SQLite file of one run."""

    @classmethod
    def create(cls, path: Path) -> Ledger:
        """Make an empty ledger."""
        ledger = cls(path)
        with ledger._transaction():
            create_missing(ledger._connection)
        return ledger

    def check(self) -> None:
        """Read the whole file, and create what it lacks of the declared tables.

        Raises:
            sqlite3.DatabaseError: it is damaged, or holds no run.
        """
        super().check()
        if self.run() is None:
            raise sqlite3.DatabaseError("the ledger holds no run")

    def begin(
        self,
        run: Mapping[str, Any],
        sources: Iterable[Mapping[str, Any]],
        shards: Iterable[Mapping[str, Any]],
        units: Iterable[Mapping[str, Any]],
    ) -> None:
        """Store the plan."""
        self.fill({"run": [run], "sources": sources, "shards": shards, "units": units})

    def fill(self, tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """Store rows of several tables in one transaction.

        Args:
            tables: rows that all have the same columns, by name of the table.
        """
        with self._transaction():
            for table, rows in tables.items():
                self._insert_all(table, rows)

    def run(self) -> Row | None:
        """The run's row; None while the plan is not stored."""
        rows = self._rows("SELECT * FROM run")
        return rows[0] if rows else None

    def sources(self) -> list[Row]:
        """The models that the run reads, in the order of the plan."""
        return self._rows("SELECT * FROM sources ORDER BY number")

    def set_state(self, state: str) -> None:
        """``planned``, ``running``, ``interrupted``, ``failed`` or ``done``."""
        self._set("run", {"state": state})

    def set_mirror(self, url: str) -> None:
        """Give the run another mirror; nothing is in it yet."""
        with self._transaction():
            self.set_mirror_url(url)
            self._change("DELETE FROM mirrored", ())

    def set_mirror_url(self, url: str) -> None:
        """Call the same mirror by another URL."""
        self._set("run", {"mirror": url})

    def move_here(
        self,
        run: Mapping[str, Any],
        folders: Mapping[int, str],
        lost: Iterable[int],
        shards: int,
    ) -> None:
        """Make a ledger that came from a mirror this machine's own, with an event that says so.

        Args:
            run: columns of the run that differ on this machine: ``output``, ``config_path``,
                ``mirror``, ``host``.
            folders: of local sources that are elsewhere on this machine, by number.
            lost: numbers of committed units whose bytes are not in the mirror.
            shards: how many are in the mirror.
        """
        came_from = (self.run() or {})["host"]
        with self._transaction():
            self._set("run", {**run, "state": "interrupted"})
            self._close_killed_attempts()
            for number, folder in folders.items():
                self._set("sources", {"folder": folder}, number)
            self.forget(
                lost, "moved_here", mirror=run["mirror"], came_from=came_from, shards=shards
            )


def read_run(path: Path) -> Row:
    """The run's row of the ledger at `path`, read without changing the file.

    Raises:
        sqlite3.DatabaseError: it cannot be read, or holds no run.
    """
    with closing(Ledger(path, read_only=True)) as ledger:
        row = ledger.run()
    if row is None:
        raise sqlite3.DatabaseError("the ledger holds no run")
    return row
