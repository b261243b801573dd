"""A model of a finished sweep, which becomes the output of a separate run.

Shards are moved from the sweep's output to the run's output, and the results of their units are
copied from the sweep's ledger to the run's ledger. A shard is moved only if the run would compute
the same bytes: the same expressions over the same files. The run computes all other shards, so a
kill between two shards, or a damaged ledger of the sweep, only costs time.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger, UnitCommit
from resumerge.ledger.connection import Row
from resumerge.ledger.ledger import LEDGER_FILE
from resumerge.storage import Storage

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

_PLANNED = ("nbytes", "dtype", "shape", "block_elements", "expression")
_PINNED = ("model", "identity", "stamps")


@dataclass(frozen=True)
class SweptModel:
    """A variant of a finished sweep.

    Args:
        run: the folder of the sweep's ledger.
        name: the variant's name, which is also its folder in the sweep's output.
    """

    run: Path
    name: str

    @property
    def nbytes(self) -> int:
        """The total size of the variant's existing shards in bytes."""
        paths = self._swept.shards.values() if self._swept else ()
        return sum(path.stat().st_size for path in paths if path.is_file())

    def move_into(self, ledger: Ledger, out: Path, storage: Storage) -> None:
        """Move shards to the output of a new run, and journal them in its ledger.

        Args:
            ledger: the new run's ledger, in which nothing is committed.
            out: the folder of the new run's output.
            storage: the operations on files.
        """
        variant = self._swept
        if variant is None or not variant.read_same_sources(ledger.sources()):
            return
        for shard in ledger.shards.all():
            planned_rows = ledger.units.all(shard["number"])
            swept_rows = [variant.units.get(row["name"], {}) for row in planned_rows]
            shard_path = variant.shards.get(shard["name"])
            if (
                shard_path
                and shard_path.is_file()
                and all(map(_is_planned, swept_rows, planned_rows))
            ):
                storage.rename(shard_path, out / shard["name"])
                commits = [
                    UnitCommit.of_row(swept_row, planned_row["number"])
                    for swept_row, planned_row in zip(swept_rows, planned_rows)
                ]
                ledger.shards.adopt_computed(
                    shard["number"], commits, kind=EventKind.SHARD_OF_SWEEP
                )

    @cached_property
    def _swept(self) -> _SweptVariant | None:
        """The facts in the sweep's ledger on the variant; None if the ledger is damaged."""
        try:
            with closing(Ledger(self.run / LEDGER_FILE, read_only=True)) as sweep_ledger:
                out = Path(sweep_ledger.run()["output"])
                variant_units = self._of_variant(
                    (row["name"], row) for row in sweep_ledger.units.all()
                )
                variant_shards = self._of_variant(
                    (name, out / name) for name in sweep_ledger.shards.sealed()
                )
                return _SweptVariant(
                    variant_shards,
                    variant_units,
                    {row["number"]: row for row in sweep_ledger.sources()},
                )
        except sqlite3.DatabaseError as error:
            _log.warning("The ledger of the sweep %s is damaged: %s", self.run, error)
            return None

    def _of_variant(self, items: Iterable[tuple[str, Value]]) -> dict[str, Value]:
        """Return the values named ``VARIANT/NAME``, by ``NAME``."""
        prefix = f"{self.name}/"
        return {
            name.removeprefix(prefix): value for name, value in items if name.startswith(prefix)
        }


@dataclass(frozen=True)
class _SweptVariant:
    """The facts in a sweep's ledger on one variant.

    Args:
        shards: the paths of sealed shards, by their names in the variant's folder.
        units: the rows of units, by the names of their tensors.
        sources: the rows of the models that the sweep read, by number.
    """

    shards: Mapping[str, Path]
    units: Mapping[str, Row]
    sources: Mapping[int, Row]

    def read_same_sources(self, sources: Iterable[Row]) -> bool:
        """Return whether the sweep read the same, unchanged models under the same numbers."""
        return all(
            row["number"] in self.sources
            and all(self.sources[row["number"]][key] == row[key] for key in _PINNED)
            for row in sources
        )


def _is_planned(swept: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    return bool(swept.get("checksum")) and all(swept[key] == planned[key] for key in _PLANNED)
