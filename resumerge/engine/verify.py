"""Reading an output again and comparing it with the checksums in the ledger."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.engine.checksums import first_mismatch, hash_block
from resumerge.engine.disk_errors import resumable_disk_errors
from resumerge.engine.files import PARTIAL
from resumerge.engine.lock import lock_holder, run_lock
from resumerge.engine.ownership import CARD, has_checksum
from resumerge.engine.recovery import open_ledger
from resumerge.plan.model import Expression, Unit
from resumerge.storage import Storage


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Args:
        units: compared.
        nbytes: read and compared.
        damaged: names of units whose bytes differ or are missing, with what was found.
        pending: units that are not committed yet, and so have nothing to compare with.
    """

    run: str
    output: Path
    units: int
    nbytes: int
    pending: int
    damaged: dict[str, str]

    @property
    def intact(self) -> bool:
        return not self.damaged

    def as_json(self) -> dict[str, Any]:
        """The document of ``verify --json``."""
        return {
            "run": self.run,
            "output": str(self.output),
            "intact": self.intact,
            "units": {"compared": self.units, "pending": self.pending},
            "bytes": self.nbytes,
            "damaged": [{"name": n, "found": found} for n, found in self.damaged.items()],
        }


def verify_run(folder: Path, storage: Storage) -> Verification:
    """Read every committed block of a run's output.

    What is damaged is made pending in the ledger, so that ``resume`` computes it anew; while
    another process works on the run, the ledger is left alone.
    """
    with resumable_disk_errors():
        if lock_holder(folder) is not None:
            return _verify(folder, storage, mark=False)
        with run_lock(folder, folder.name):
            return _verify(folder, storage, mark=True)


def _verify(folder: Path, storage: Storage, *, mark: bool) -> Verification:
    ledger, _ = open_ledger(folder, storage)
    try:
        out = Path((ledger.run() or {})["output"])
        damaged: dict[str, str] = {}
        lost: list[int] = []
        compared = nbytes = pending = 0
        for shard in ledger.rows("SELECT * FROM shards ORDER BY number"):
            rows = ledger.rows(
                "SELECT * FROM units WHERE shard = ? ORDER BY number", [shard["number"]]
            )
            committed = [row for row in rows if row["committed_blocks"]]
            forgotten = [row for row in rows if not row["committed_blocks"] and row["attempt"]]
            pending += len(rows) - len(committed) - len(forgotten)
            found = _compare(out, shard, committed)
            damaged.update({row["name"]: "found damaged before" for row in forgotten})
            compared += len(committed)
            nbytes += sum(row["nbytes"] for row in committed if row["number"] not in found)
            lost += found
            names = {row["number"]: row["name"] for row in rows}
            damaged.update({names[number]: what for number, what in found.items()})
        for name, checksum in ledger.companions().items():
            if name != CARD and not has_checksum(out / name, checksum):
                damaged[name] = "the file differs or is missing"
        if mark and lost:
            ledger.forget(lost, "verify_found_damage", names=list(damaged)[:5])
        if mark and damaged:
            ledger.set_state("interrupted")
        return Verification(folder.name, out, compared, nbytes, pending, damaged)
    finally:
        ledger.close()


def _compare(out: Path, shard: dict[str, Any], rows: list[dict[str, Any]]) -> dict[int, str]:
    """What is wrong with which unit of a shard."""
    names = [shard["name"], shard["name"] + PARTIAL]
    path = next((out / name for name in names if (out / name).exists()), None)
    if path is None:
        return {row["number"]: f"{shard['name']} is missing" for row in rows}
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(fd, shard["header_bytes"], 0)
        if hash_block(head).hex() != shard["header_checksum"]:
            return {row["number"]: f"the header of {path.name} differs" for row in rows}
        found = {}
        for row in rows:
            index = first_mismatch(fd, unit_of_row(row), row["block_hashes"])
            if index is not None:
                found[row["number"]] = f"block {index} differs in {path.name}"
        return found
    finally:
        os.close(fd)


def unit_of_row(row: dict[str, Any]) -> Unit:
    """A unit as the ledger knows it: its place, without what computes it."""
    return Unit(
        row["number"],
        row["name"],
        row["dtype"],
        tuple(json.loads(row["shape"])),
        row["shard"],
        row["offset"],
        row["nbytes"],
        row["grain"],
        Expression("", ()),
    )
