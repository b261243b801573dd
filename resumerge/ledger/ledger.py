"""One run's journal: what is planned, what is committed, and what happened on the way."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.ledger.connection import Row
from resumerge.ledger.schema import create_missing
from resumerge.ledger.tables import TABLES
from resumerge.ledger.units import UnitTables
from resumerge.ledger.validity import check_agreement, in_sequence

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
            sqlite3.DatabaseError: it is damaged, holds no run, or contradicts itself.
        """
        super().check()
        self.check_rows()

    def check_rows(self) -> None:
        """Check every value, and that the rows agree with each other.

        Raises:
            InvalidLedger: with the column.
        """
        compared = ("run", "sources", "shards", "mirrored", "attempts")
        with self._at_one_moment():
            rows = {name: in_sequence(name, self._stream(name, "ORDER BY 1")) for name in TABLES}
            for name in TABLES.keys() - {*compared, "units"}:
                deque(rows[name], maxlen=0)
            check_agreement({name: [*rows[name]] for name in compared}, rows["units"])

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
        rows = self._read("run")
        return rows[0] if rows else None

    def sources(self) -> list[Row]:
        """The models that the run reads, in the order of the plan."""
        return self._read("sources", rest="ORDER BY number")

    def set_stamps(self, stamps: Mapping[str, str]) -> None:
        """Store what the filesystem says of the files of local models, JSON, by model."""
        with self._transaction():
            for model, text in stamps.items():
                self._change("UPDATE sources SET stamps = ? WHERE model = ?", [text, model])

    def set_contents(self, hashes: Mapping[str, str]) -> None:
        """Store the hash of what was read of each local model, by model."""
        with self._transaction():
            for model, text in hashes.items():
                self._change("UPDATE sources SET content = ? WHERE model = ?", [text, model])

    def set_state(self, state: str) -> None:
        """``planned``, ``running``, ``interrupted``, ``failed`` or ``done``."""
        self._set("run", {"state": state})

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Store what is kept of the options: `Options.kept_from_now`."""
        self._set("run", {"options": json.dumps(options)})

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


def read_run(path: Path, column: str) -> Any:
    """A column of the run's row of the ledger at `path`, read without changing the file.

    Raises:
        sqlite3.DatabaseError: it cannot be read, or holds no run.
    """
    with closing(Ledger(path, read_only=True)) as ledger:
        rows = ledger._read("run", [column])
    if not rows:
        raise sqlite3.DatabaseError("the ledger contains no run")
    return rows[0][column]
