"""Compaction: an adapter without the directions that are zeros, once all its changes are known.

Where the changes choose the ranks, each module is computed and journaled at the highest rank, with
zeros for what is not kept. When all are there, the file is written anew without these, beside the
old one; the ledger gets the places, hashes and ranks of the new one in one transaction; then it
takes the old one's name. So a run that is killed goes on from the old file, or from the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from resumerge.engine.opening.plan_rows import shard_rows, unit_rows
from resumerge.engine.shards.checksums import unit_checksum
from resumerge.engine.shards.sealing import seal
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.event_kinds import EventKind
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import Ledger, UnitCommit, UnitMeasurements
from resumerge.planning.adapters import with_ranks
from resumerge.planning.plan import Plan, Unit
from resumerge.storage import Storage
from resumerge.tensors import Factors
from resumerge.tensors.dtypes import BITS

COPIED_AT_ONCE = 1 << 24
"""Bytes of a tensor without ranks that are copied together."""


def compact(
    plan: Plan, folder: Path, ledger: Ledger, storage: Storage, moved: Callable[[int, int], None]
) -> Plan:
    """Leave out the directions that are zeros, seal the adapter, and return its plan from then on.

    Args:
        plan: the plan with the highest ranks, all of whose units are committed.
        folder: the output's folder.
        ledger: the run's ledger.
        storage: the operations on files.
        moved: called after every unit, with the bytes done so far and all of them. It may raise.
    """
    [shard] = plan.shards
    files = ShardFiles(plan, folder, storage)
    if shard.name not in ledger.shards.open():  # nothing could be left out, and it was sealed
        return plan
    old = os.open(files.partial(shard), os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = with_ranks(plan, _ranks(plan, old))
        assert found.adapter is not None and plan.adapter is not None
        if found.adapter.ranks != plan.adapter.ranks:
            path = files.compacted(shard)
            new = storage.begin(path)
            try:
                commits = _write(plan, found, ledger, old, new, storage, moved)
                storage.sync_data(new)
            finally:
                os.close(new)
            storage.sync_folder(folder)
            ranks = found.adapter.ranks.values()
            ledger.units.lay_out_again(
                shard_rows(found),
                unit_rows(found),
                commits,
                EventKind.RANKS_CHOSEN,
                modules=len(ranks),
                least=min(ranks),
                most=max(ranks),
            )
            files = ShardFiles(found, folder, storage)
            storage.rename(path, files.partial(shard))
    finally:
        os.close(old)
    seal(found.shards[0], files, ledger, storage)
    return found


def finish_compaction(plan: Plan, folder: Path, storage: Storage) -> None:
    """Rename a compacted file that the ledger knows; remove one that it does not know."""
    assert plan.adapter is not None
    files, [shard] = ShardFiles(plan, folder, storage), plan.shards
    path = files.compacted(shard)
    if not path.exists():
        return
    if plan.adapter.is_undecided or not files.has_size_and_header(shard, path):
        storage.remove(path)
    else:
        storage.rename(path, files.partial(shard))


def _ranks(plan: Plan, file: int) -> dict[str, int]:
    """Return the rank of each module: that of its last direction that is not zero."""
    ranks = {}
    for unit, factors in _factors(plan):
        a, _ = _matrices(factors, _read(file, unit.offset, unit.nbytes))
        used = np.flatnonzero(np.any(a << 1, axis=(0, 2)))  # without the sign
        ranks[unit.name] = int(used[-1]) + 1 if len(used) else 1
    return ranks


def _factors(plan: Plan) -> Iterator[tuple[Unit, Factors]]:
    for unit in plan.units:
        if isinstance(unit.expression, Factors):
            yield unit, unit.expression


def _matrices(factors: Factors, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits of A as (matrices, rank, inputs), and of B as (outputs, rank, matrices)."""
    count, rank = len(factors.pairs), factors.rank
    bits = data.view(f"u{BITS[factors.dtype] // 8}")
    split = count * rank * factors.inputs
    return (
        bits[:split].reshape(count, rank, factors.inputs),
        bits[split:].reshape(factors.outputs, rank, count),
    )


def _read(file: int, offset: int, nbytes: int) -> np.ndarray:
    data = np.empty(nbytes, np.uint8)
    done = 0
    while done < nbytes:
        count = os.preadv(file, [data[done:].data], offset + done)
        if not count:
            raise OSError(f"the adapter's file ends at {offset + done} bytes")
        done += count
    return data


def _write(
    before: Plan,
    after: Plan,
    ledger: Ledger,
    old: int,
    new: int,
    storage: Storage,
    moved: Callable[[int, int], None],
) -> list[UnitCommit]:
    """Write the new file, and return what the ledger is to know of its units."""
    commits = []
    measured = {row["name"]: known for row, known in ledger.units.measurements()}
    progress = ledger.units.progress()
    storage.write(new, after.shards[0].header, 0)
    for unit, other in zip(before.units, after.units, strict=True):
        hashes, measurements = progress[unit.index].hashes, measured.get(unit.name)
        if isinstance(unit.expression, Factors) and isinstance(other.expression, Factors):
            data = _read(old, unit.offset, unit.nbytes)
            rank = other.expression.rank
            a, b = _matrices(unit.expression, data)
            data = np.concatenate([a[:, :rank].reshape(-1), b[:, :rank].reshape(-1)])
            storage.write(new, data.view(np.uint8).data, other.offset)
            hashes = hash_block(data.view(np.uint8).data)
            if measurements is not None:
                energies = measurements["intended"], measurements["change"]
                rows = other.expression.measured(*energies).tolist()
                measurements = UnitMeasurements.begun(measurements.models).plus(rows)
        else:
            for start in range(0, unit.nbytes, COPIED_AT_ONCE):
                size = min(COPIED_AT_ONCE, unit.nbytes - start)
                storage.write(new, _read(old, unit.offset + start, size).data, other.offset + start)
        commits.append(
            UnitCommit(other.index, hashes, b"", unit_checksum(hashes), 0.0, measurements)
        )
        moved(other.offset + other.nbytes, after.output_bytes)
    return commits
