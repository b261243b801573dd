"""A model that a finished sweep made of a recipe, which becomes the output of a run of its own.

The shards move from the sweep's output to the run's, and what the sweep's ledger says of their
units goes with them. It is taken only where the run would compute just that: the same expressions,
of the same files. Whatever is not taken is computed, so a kill between two shards costs time alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger, UnitCommit
from resumerge.ledger.ledger import LEDGER_FILE
from resumerge.ledger.unit_measurements import UnitMeasurements
from resumerge.storage import Storage

_PLANNED = ("nbytes", "dtype", "shape", "block_elements", "expression")
_PINNED = ("model", "identity", "stamps")


@dataclass(frozen=True)
class SweptModel:
    """A variant of a sweep that is done.

    Args:
        run: the folder of the sweep's ledger.
        name: the variant.
    """

    run: Path
    name: str

    @property
    def nbytes(self) -> int:
        """The bytes of its shards that are there."""
        with closing(self._ledger()) as swept:
            paths = [self._out(swept) / name for name in self._sealed(swept)]
            return sum(path.stat().st_size for path in paths if path.is_file())

    def give(self, ledger: Ledger, out: Path, storage: Storage) -> None:
        """Move the shards to a new run's output, and journal them there.

        Args:
            ledger: the run's ledger, in which nothing is committed.
            out: the output's folder.
            storage: the operations on files.
        """
        with closing(self._ledger()) as swept:
            if not _read_the_same(swept, ledger):
                return
            sealed, rows = self._sealed(swept), {row["name"]: row for row in swept.units.all()}
            for shard in ledger.shards.all():
                planned = ledger.units.all(shard["number"])
                found = [rows.get(f"{self.name}/{row['name']}", {}) for row in planned]
                name = f"{self.name}/{shard['name']}"
                path = self._out(swept) / name
                if name in sealed and path.is_file() and all(map(_is_planned, found, planned)):
                    storage.rename(path, out / shard["name"])
                    commits = list(map(_commit, found, planned))
                    kind = EventKind.SHARD_OF_SWEEP
                    ledger.shards.adopt_computed(shard["number"], commits, kind=kind)

    def _ledger(self) -> Ledger:
        return Ledger(self.run / LEDGER_FILE, read_only=True)

    def _sealed(self, swept: Ledger) -> set[str]:
        return {name for name in swept.shards.sealed() if name.startswith(f"{self.name}/")}

    @staticmethod
    def _out(swept: Ledger) -> Path:
        return Path(swept.run()["output"])


def _read_the_same(swept: Ledger, ledger: Ledger) -> bool:
    """Return whether a run's models are those of the sweep, by the same numbers, and untouched."""
    pinned = {row["number"]: row for row in swept.sources()}
    return all(
        row["number"] in pinned and all(pinned[row["number"]][key] == row[key] for key in _PINNED)
        for row in ledger.sources()
    )


def _is_planned(found: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    return bool(found.get("checksum")) and all(found[key] == planned[key] for key in _PLANNED)


def _commit(found: Mapping[str, Any], planned: Mapping[str, Any]) -> UnitCommit:
    measured = found["measurements"]
    return UnitCommit(
        planned["number"],
        found["block_hashes"],
        found["input_hashes"],
        found["checksum"],
        found["seconds"] or 0.0,
        UnitMeasurements.of_json(measured) if measured else None,
    )
