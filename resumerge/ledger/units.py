"""The units and shards of a run: planned, committed and sealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resumerge.digests import HASH_BYTES
from resumerge.event_kinds import EventKind
from resumerge.ledger.attempts import Events, Sample, Samples
from resumerge.ledger.connection import Connection, Row, now
from resumerge.ledger.files import Mirrored
from resumerge.ledger.tables import TABLES, Column
from resumerge.ledger.unit_measurements import UnitMeasurements
from resumerge.ledger.validators import MOST_SECONDS

_OF_SHARD = ("nbytes", "header_bytes", "header_checksum")
_OF_UNIT = ("offset", "nbytes", "shape", "block_elements", "expression", "blocks")
_OF_BYTES = ("block_hashes", "checksum", "measurements")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of one unit, as the ledger records it.

    Args:
        committed_blocks: the number of committed blocks, counted from the first block on.
        hashes: the hashes of the committed blocks, 16 bytes each, in block order.
        input_hashes: the hashes of the inputs of these blocks; empty for a complete unit.
        checksum: the checksum of the whole unit; None while blocks are missing.
        attempt: the number of the attempt that committed blocks last; None if no attempt in this
            ledger did.
        batch: the number of the batch, within that attempt, that committed blocks last.
        measurements: the measurements of the committed blocks; None for a complete unit, and if one
            of the blocks was not measured.
    """

    committed_blocks: int
    hashes: bytes
    input_hashes: bytes
    checksum: str | None
    attempt: int | None
    batch: int | None
    measurements: UnitMeasurements | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every block is committed."""
        return self.checksum is not None


@dataclass(frozen=True, kw_only=True)
class UnitCommit:
    """The blocks of one unit that are on disk and ready to be committed.

    Args:
        number: the number of the unit in the ledger that receives the commit.
        hashes: the hashes of all committed blocks of the unit, including the blocks of this batch.
        input_hashes: the hashes of the inputs of these blocks.
        checksum: the checksum of the whole unit; None while blocks are missing.
        seconds: the seconds spent computing the unit in this batch.
        measurements: the measurements of these blocks; None if they were not measured.
    """

    number: int
    hashes: bytes
    input_hashes: bytes
    checksum: str | None
    seconds: float
    measurements: UnitMeasurements | None = None

    @classmethod
    def of_row(cls, row: Mapping[str, Any], number: int) -> UnitCommit:
        """Build the commit of a unit from its row in another ledger.

        Args:
            row: the row of a committed unit in the other ledger's table ``units``.
            number: the unit's number in this ledger.
        """
        measurements = row["measurements"]
        return cls(
            number=number,
            hashes=row["block_hashes"],
            input_hashes=row["input_hashes"] or b"",
            checksum=row["checksum"],
            seconds=row["seconds"] or 0.0,
            measurements=UnitMeasurements.of_json(measurements) if measurements else None,
        )

    @property
    def results(self) -> dict[str, Any]:
        """The unit's results and state: values for the table ``units``, by column."""
        return {
            "state": "committed" if self.checksum else "pending",
            "committed_blocks": len(self.hashes) // HASH_BYTES,
            "block_hashes": self.hashes,
            "input_hashes": self.input_hashes,
            "checksum": self.checksum,
            "measurements": self.measurements and self.measurements.as_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The progress of a whole run.

    Args:
        units: the number of units of the plan.
        units_committed: the number of units that are committed.
        nbytes: the size of the output's tensors in bytes.
        nbytes_committed: the bytes of `nbytes` that are committed, in proportion to the committed
            blocks of each unit.
        shards: the number of shards, of every model in the output.
        shards_sealed: the number of shards that are sealed.
        shards_copied: the number of shards that are copies of weight files.
    """

    units: int
    units_committed: int
    nbytes: int
    nbytes_committed: int
    shards: int
    shards_sealed: int
    shards_copied: int


@dataclass
class Units:
    """The table ``units``."""

    _db: Connection
    _events: Events
    _samples: Samples

    def all(self, shard: int | None = None) -> list[Row]:
        """Return the units of a shard, or all units for None, in the order of the plan."""
        if shard is None:
            return self._db.read("units", order_by="number")
        return self._db.read("units", (), "shard = ?", [shard], order_by="number")

    def recent(self, batches: int) -> set[int]:
        """Return the numbers of the units in the last batches of the last attempt that committed.

        Args:
            batches: the number of batches, counted back from the newest one.
        """
        columns = ("number", "attempt", "batch")
        unit_rows = self._db.read("units", columns, "attempt IS NOT NULL AND batch IS NOT NULL")
        newest_batch = max(((row["attempt"], row["batch"]) for row in unit_rows), default=(0, 0))
        return {
            row["number"]
            for row in unit_rows
            if row["attempt"] == newest_batch[0] and row["batch"] > newest_batch[1] - batches
        }

    def committed_blocks(self) -> int:
        """Return the number of committed blocks of all units."""
        return sum(row["committed_blocks"] for row in self._db.read("units", ["committed_blocks"]))

    def progress(self) -> list[Progress]:
        """Return the progress of every unit, in the order of the plan."""
        columns = ("number", "committed_blocks", "block_hashes", "checksum", "attempt", "batch")
        unit_rows = self._db.read("units", columns, order_by="number")
        incomplete_columns = ("number", "input_hashes", "measurements")
        incomplete_rows = {
            row["number"]: row
            for row in self._db.read("units", incomplete_columns, "checksum IS NULL")
        }
        null_row: Row = {"input_hashes": None, "measurements": None}
        return [
            Progress(
                committed_blocks=row["committed_blocks"],
                hashes=row["block_hashes"] or b"",
                input_hashes=incomplete_rows.get(row["number"], null_row)["input_hashes"] or b"",
                checksum=row["checksum"],
                attempt=row["attempt"],
                batch=row["batch"],
                measurements=_measurements_of(
                    incomplete_rows.get(row["number"], null_row)["measurements"],
                    row["committed_blocks"],
                ),
            )
            for row in unit_rows
        ]

    def measurements(self) -> list[tuple[Row, UnitMeasurements]]:
        """Return (row, measurements) of each complete unit whose blocks were all measured.

        Blocks that ``--no-accounts`` or an older version of the program committed are not measured.
        """
        columns = ("number", "name", "dtype", "shape", "blocks", "measurements")
        condition = "measurements IS NOT NULL AND checksum IS NOT NULL"
        rows = self._db.read("units", columns, condition, order_by="number")
        pairs = ((row, _measurements_of(row["measurements"], row["blocks"])) for row in rows)
        return [(row, measurements) for row, measurements in pairs if measurements]

    def commit_batch(
        self,
        attempt: int,
        batch: int,
        units: Sequence[UnitCommit],
        totals: Mapping[str, Any],
        sample: Sample | None = None,
    ) -> None:
        """Mark the blocks of a batch as committed. The caller has synced their bytes.

        Args:
            attempt: the number of the attempt that computed the batch; its row is updated, too.
            batch: the batch's number in the attempt, counted from 1.
            units: the commit of each unit that has blocks in the batch.
            totals: the columns of the attempt that count its work so far, by name.
            sample: a sample to store in the same transaction, or None.
        """
        unit_columns = [unit.results | {"attempt": attempt, "batch": batch} for unit in units]
        with self._db.transaction():
            if unit_columns:
                columns = ", ".join(f"{name} = ?" for name in unit_columns[0])
                self._db.change(
                    f"UPDATE units SET {columns},"
                    f" seconds = min(coalesce(seconds, 0) + ?, {MOST_SECONDS}) WHERE number = ?",
                    *(
                        (*values.values(), unit.seconds, unit.number)
                        for values, unit in zip(unit_columns, units)
                    ),
                )
            self._db.update("attempts", attempt, {**totals, "batches": batch, "last_seen": now()})
            if sample is not None:
                self._samples.add(attempt, sample)

    def replace_layout(
        self,
        shards: Iterable[Row],
        units: Iterable[Row],
        commits: Sequence[UnitCommit],
        kind: EventKind,
        **data: Any,
    ) -> None:
        """Store new offsets, sizes and hashes of all shards and units, and record an event.

        The caller has written and synced a file that matches the new rows.

        Args:
            shards: the new rows of all shards.
            units: the new rows of all units, which are all committed.
            commits: the new results of each unit, in the order of `units`.
            kind: the kind of the event that gives the reason for the new layout.
            data: the facts of the event, by name.
        """
        with self._db.transaction():
            for row in shards:
                self._db.update("shards", row["number"], {name: row[name] for name in _OF_SHARD})
            for row, commit in zip(units, commits, strict=True):
                layout_columns = {name: row[name] for name in _OF_UNIT}
                result_columns = {name: commit.results[name] for name in _OF_BYTES}
                self._db.update("units", row["number"], layout_columns | result_columns)
            self._events.add(kind, **data)

    def forget(self, numbers: Iterable[int], kind: EventKind, **data: Any) -> None:
        """Make units pending and their shards open again, and record an event with the reason.

        The rows of these shards in ``mirrored`` are deleted, because the mirror's copies are
        outdated.
        """
        unit_numbers = list(numbers)
        cleared_columns = {column.name: 0 if column.type is int else None for column in _results()}
        with self._db.transaction():
            shard_numbers = set()
            for number in unit_numbers:
                [unit_row] = self._db.read("units", ["shard"], "number = ?", [number])
                shard_numbers.add(unit_row["shard"])
                self._db.update("units", number, cleared_columns | {"state": "pending"})
            for number in shard_numbers:
                [shard_row] = self._db.read("shards", ["name"], "number = ?", [number])
                self._db.update("shards", number, {"state": "open", "sealed_at": None})
                self._db.delete("mirrored", "name = ?", [shard_row["name"]])
            self._db.delete("steps")  # steps may have read the same doubtful files
            self._events.add(kind, units=len(unit_numbers), **data)


@dataclass
class Shards:
    """The table ``shards``."""

    _db: Connection
    _events: Events
    _mirrored: Mirrored

    def all(self) -> list[Row]:
        """Return every shard, in the order of the plan."""
        return self._db.read("shards", order_by="number")

    def open(self) -> list[str]:
        """Return the names of the shards that are not sealed, in the order of the plan."""
        return [shard["name"] for shard in self.all() if shard["state"] != "sealed"]

    def sealed(self) -> list[str]:
        """Return the names of the shards that are sealed, in the order of the plan."""
        return [shard["name"] for shard in self.all() if shard["state"] == "sealed"]

    def unmirrored(self) -> list[str]:
        """Return the names of the sealed shards that the mirror lacks, in the order of the plan."""
        # Read the sealed shards first: a task's shard is sealed and mirrored in one transaction.
        sealed_names = self.sealed()
        mirrored_names = self._mirrored.checksums()
        return [name for name in sealed_names if name not in mirrored_names]

    def reset_shards(self) -> set[str]:
        """Return the names of shards with units that were committed and are pending again."""
        condition = "committed_blocks = 0 AND attempt IS NOT NULL"
        shard_numbers = {row["shard"] for row in self._db.read("units", ["shard"], condition)}
        return {shard["name"] for shard in self.all() if shard["number"] in shard_numbers}

    def seal(self, shard: int, mirrored: tuple[int, str] | None = None) -> None:
        """Mark a shard as sealed. The caller has renamed its file to the final name, durably.

        Args:
            shard: the number of an open shard, all of whose units are committed.
            mirrored: the size in bytes and the SHA-256 of a shard that is only in the mirror; None
                for a local file.
        """
        with self._db.transaction():
            self._db.update("shards", shard, {"state": "sealed", "sealed_at": now()})
            if mirrored is not None:
                self._mirrored.record(self._name_of(shard), *mirrored)

    def adopt_computed(
        self,
        shard: int,
        units: Sequence[UnitCommit],
        mirrored: tuple[int, str] | None = None,
        kind: EventKind = EventKind.SHARD_ADOPTED,
    ) -> None:
        """Adopt and seal a shard that was computed by an earlier task of a cluster, or by a sweep.

        The caller has checked that the bytes have these hashes, and that the file has its final
        name, durably.

        Args:
            shard: the number of an open shard of this run.
            units: the commits of all units of the shard.
            mirrored: the size in bytes and the SHA-256 of a shard that is only in the mirror; None
                for a local file.
            kind: the kind of the event to record.
        """
        with self._db.transaction():
            for unit_commit in units:
                seconds = min(unit_commit.seconds, MOST_SECONDS)
                adoption_columns = {"attempt": None, "batch": None, "seconds": seconds}
                self._db.update("units", unit_commit.number, unit_commit.results | adoption_columns)
            self.seal(shard, mirrored)
            self._events.add(kind, shard=self._name_of(shard), units=len(units))

    def adopt_mirrored(
        self, shards: Mapping[int, Sequence[Row]], mirrored: Mapping[str, tuple[int, str]]
    ) -> None:
        """Adopt shards that another machine sealed and mirrored.

        Args:
            shards: the unit rows of each shard in the other machine's ledger, by shard number.
            mirrored: the size in bytes and the SHA-256 of every file in the mirror, by name.
        """
        adoption_columns = {"state": "committed", "attempt": None, "batch": None}
        with self._db.transaction():
            for shard_number, unit_rows in shards.items():
                for unit_row in unit_rows:
                    result_columns = {
                        column.name: unit_row.get(column.name) for column in _results()
                    }
                    self._db.update("units", unit_row["number"], result_columns | adoption_columns)
                self.seal(shard_number)
                self._events.add(
                    EventKind.SHARD_FROM_MIRROR,
                    shard=self._name_of(shard_number),
                    units=len(unit_rows),
                )
            if shards:  # without stamps, checks/drift.py compares local models by input hashes
                self._db.update_where("sources", {"stamps": None})
            recorded_names = self._mirrored.checksums()
            for name, (nbytes, sha256) in mirrored.items():
                if name not in recorded_names:
                    self._mirrored.record(name, nbytes, sha256)

    def _name_of(self, shard: int) -> str:
        [row] = self._db.read("shards", ["name"], "number = ?", [shard])
        return str(row["name"])


def _measurements_of(text: str | None, blocks: int) -> UnitMeasurements | None:
    """Parse the JSON of measurements; return None if they cover another number of blocks."""
    measurements = UnitMeasurements.of_json(text) if text else None
    return measurements if measurements and measurements.blocks == blocks else None


def _results() -> list[Column]:
    return [column for column in TABLES["units"].columns if column.result]
