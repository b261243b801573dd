"""The ledger of one run: its plan, its committed units, and its attempts and events."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.event_kinds import EventKind
from resumerge.ledger.attempts import Attempts, Events, Samples
from resumerge.ledger.connection import Connection, Row
from resumerge.ledger.files import Companions, Downloads, Mirrored, Steps
from resumerge.ledger.tables import TABLES
from resumerge.ledger.units import Shards, Totals, Units
from resumerge.ledger.validity import InvalidLedger, check_agreement, in_sequence

LEDGER_FILE = "ledger.db"
_WRITTEN = ("shards", "companions")


class Ledger:
    """The SQLite file of one run: the plan, and an attribute for each table that changes later.

    Several threads may use a `Ledger`, and several processes may have the file open. Every change
    is one transaction. Once the method has returned, the change survives a power cut.

    Args:
        path: the file, which is created if it does not exist.
        read_only: whether to leave the file and its journal mode unchanged. Declared columns that
            the file lacks are then read as null.

    Raises:
        sqlite3.DatabaseError: the file is not a database, is damaged, or its schema is not a
            ledger's.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._db = Connection(path, read_only=read_only)
        self.attempts = Attempts(self._db)
        self.events = Events(self._db)
        self.samples = Samples(self._db)
        self.companions = Companions(self._db)
        self.steps = Steps(self._db)
        self.downloads = Downloads(self._db, self.events)
        self.mirrored = Mirrored(self._db)
        self.units = Units(self._db, self.events, self.samples)
        self.shards = Shards(self._db, self.events, self.mirrored)

    @classmethod
    def create(cls, path: Path) -> Ledger:
        """Make an empty ledger."""
        ledger = cls(path)
        ledger._db.create_missing()
        return ledger

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def use_one_file(self) -> None:
        """Move all data into the ledger's file, and remove the write-ahead log beside it."""
        self._db.use_one_file()

    def check(self) -> None:
        """Read and check the whole file, and create the declared tables that it lacks.

        Raises:
            sqlite3.DatabaseError: the file is damaged, holds no run, or contradicts itself.
        """
        self._db.check()
        self._db.create_missing()
        self.check_rows()

    def check_rows(self) -> None:
        """Check every value, and check that the rows agree with each other.

        Raises:
            InvalidLedger: a value is invalid, or rows contradict each other. The error names the
                column.
        """
        compared_tables = ("run", "sources", "shards", "mirrored", "attempts")
        with self._db.consistent_read():
            rows_of_tables = {
                name: in_sequence(name, self._db.stream(name, order_by="1")) for name in TABLES
            }
            for name in TABLES.keys() - {*compared_tables, "units"}:
                deque(rows_of_tables[name], maxlen=0)  # each row is checked as it is read
            check_agreement(
                {name: [*rows_of_tables[name]] for name in compared_tables}, rows_of_tables["units"]
            )

    def begin(
        self,
        run: Mapping[str, Any],
        sources: Iterable[Mapping[str, Any]],
        shards: Iterable[Mapping[str, Any]],
        units: Iterable[Mapping[str, Any]],
        accounts: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Store the plan: the row of the run and the rows of its other tables, by table."""
        tables = {"run": [run], "sources": sources, "shards": shards, "units": units}
        self.fill({**tables, "accounts": accounts})

    def fill(self, tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """Store rows of several tables in one transaction.

        Args:
            tables: the rows of each table, by its name. All rows of a table have the same columns.
        """
        with self._db.transaction():
            for table, rows in tables.items():
                self._db.insert_all(table, rows)

    def run(self) -> Row:
        """Return the run's row.

        Raises:
            InvalidLedger: the plan is not stored.
        """
        run = self.run_or_none()
        if run is None:
            raise InvalidLedger("it contains no run")
        return run

    def run_or_none(self) -> Row | None:
        """Return the run's row; None before the plan is stored."""
        rows = self._db.read("run")
        return rows[0] if rows else None

    def totals(self) -> Totals:
        """Count the run's units, bytes and shards, in total and finished."""
        unit_rows = self._db.read("units", ("state", "nbytes", "blocks", "committed_blocks"))
        shard_rows = self._db.read("shards", ["state", "copied"])
        return Totals(
            units=len(unit_rows),
            units_committed=sum(row["state"] == "committed" for row in unit_rows),
            nbytes=sum(row["nbytes"] for row in unit_rows),
            nbytes_committed=sum(
                row["nbytes"] * row["committed_blocks"] // row["blocks"] for row in unit_rows
            ),
            shards=len(shard_rows),
            shards_sealed=sum(row["state"] == "sealed" for row in shard_rows),
            shards_copied=sum(bool(row["copied"]) for row in shard_rows),
        )

    def written_names(self) -> list[str]:
        """Return the final names of all files that the run writes to its output."""
        return [row["name"] for table in _WRITTEN for row in self._db.read(table, ["name"])]

    def sources(self) -> list[Row]:
        """Return the models that the run reads, in the order of the plan."""
        return self._db.read("sources", order_by="number")

    def accounts(self) -> list[Row]:
        """Return the uses of each model's tensors; empty if an older version made the plan."""
        return self._db.read("accounts", order_by="number")

    def set_stamps(self, stamps: Mapping[str, str]) -> None:
        """Store the file stamps of local models: JSON text, by model."""
        with self._db.transaction():
            for model, text in stamps.items():
                self._db.update_where("sources", {"stamps": text}, "model = ?", [model])

    def set_contents(self, hashes: Mapping[str, str]) -> None:
        """Store hashes of the bytes that the run read from local models, by model."""
        with self._db.transaction():
            for model, text in hashes.items():
                self._db.update_where("sources", {"content": text}, "model = ?", [model])

    def set_state(self, state: str) -> None:
        """Store the state: ``planned``, ``running``, ``interrupted``, ``failed`` or ``done``."""
        self._db.update_where("run", {"state": state})

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Store the options that later attempts inherit, from `Options.kept_after_resume`."""
        self._db.update_where("run", {"options": json.dumps(options)})

    def set_mirror(self, url: str) -> None:
        """Store the URL of a new, empty mirror, and remove all rows of ``mirrored``."""
        with self._db.transaction():
            self.set_mirror_url(url)
            self._db.delete("mirrored")

    def set_mirror_url(self, url: str) -> None:
        """Store another URL of the same mirror."""
        self._db.update_where("run", {"mirror": url})

    def move_here(
        self,
        run: Mapping[str, Any],
        folders: Mapping[int, str],
        lost: Iterable[int],
        shards: int,
    ) -> None:
        """Adapt a ledger that came from a mirror to this machine, and record an event.

        Args:
            run: the columns of the run that differ on this machine: ``output``, ``config_path``,
                ``mirror``, ``host``.
            folders: the new paths of local sources that moved, by the source's number.
            lost: the numbers of committed units whose bytes are not in the mirror. They become
                pending.
            shards: the number of shards in the mirror.
        """
        previous_host = self.run()["host"]
        with self._db.transaction():
            self._db.update_where("run", {**run, "state": "interrupted"})
            self.attempts.close_killed()
            for source_number, local_folder in folders.items():
                self._db.update("sources", source_number, {"folder": local_folder})
            self.units.forget(
                lost,
                EventKind.MOVED_HERE,
                mirror=run["mirror"],
                came_from=previous_host,
                shards=shards,
            )


def read_run(path: Path, column: str) -> Any:
    """Read one column of the run's row from the ledger at `path`, without changing the file.

    Raises:
        sqlite3.DatabaseError: the file cannot be read, or holds no run.
    """
    with closing(Ledger(path, read_only=True)) as ledger:
        rows = ledger._db.read("run", [column])
    if not rows:
        raise InvalidLedger("the ledger contains no run")
    return rows[0][column]
