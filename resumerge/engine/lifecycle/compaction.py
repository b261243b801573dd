"""Compaction: once an adapter's ranks are known, it is written again without zero directions.

If the ranks depend on the changes, each module is first computed and journaled at the highest rank.
Directions that are left out are zeros. When all modules are committed, a new file without these
directions is written beside the old file. One transaction then stores the new file's offsets,
hashes and ranks in the ledger. Last, the new file is renamed to the old file's name. A killed run
continues from the old file or from the new file.
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
from resumerge.planning.other_outputs.adapters import with_ranks
from resumerge.planning.plan import Plan, Unit
from resumerge.storage import Storage
from resumerge.tensors import Factors
from resumerge.tensors.dtypes import BITS

COPIED_AT_ONCE = 1 << 24
"""Bytes that are copied at once of a tensor that is not a pair of factors."""


def compact(
    plan: Plan,
    folder: Path,
    ledger: Ledger,
    storage: Storage,
    on_progress: Callable[[int, int], None],
) -> Plan:
    """Remove directions that are zeros, seal the adapter, and return its plan with the final ranks.

    Args:
        plan: the plan with the highest ranks; all of its units are committed.
        folder: the output's folder, which holds the adapter's file.
        ledger: the ledger in which the shard is sealed; if ranks are lowered, it is given the new
            offsets, hashes and ranks first.
        storage: the operations on files.
        on_progress: called after every unit with the bytes written so far and the total bytes; may
            raise, to stop.
    """
    [shard] = plan.shards
    files = ShardFiles(plan, folder, storage)
    if shard.name not in ledger.shards.open():  # no direction could be removed
        return plan
    old_fd = os.open(files.partial(shard), os.O_RDONLY | os.O_CLOEXEC)
    try:
        compacted_plan = with_ranks(plan, _ranks(plan, old_fd))
        assert compacted_plan.adapter is not None and plan.adapter is not None
        if compacted_plan.adapter.ranks != plan.adapter.ranks:
            compacted_path = files.compacted(shard)
            new_fd = storage.begin(compacted_path)
            try:
                unit_commits = _write(
                    plan, compacted_plan, ledger, old_fd, new_fd, storage, on_progress
                )
                storage.sync_data(new_fd)
            finally:
                os.close(new_fd)
            storage.sync_folder(folder)
            ranks = compacted_plan.adapter.ranks.values()
            ledger.units.replace_layout(
                shard_rows(compacted_plan),
                unit_rows(compacted_plan),
                unit_commits,
                EventKind.RANKS_CHOSEN,
                modules=len(ranks),
                least=min(ranks),
                most=max(ranks),
            )
            files = ShardFiles(compacted_plan, folder, storage)
            storage.rename(compacted_path, files.partial(shard))
    finally:
        os.close(old_fd)
    seal(compacted_plan.shards[0], files, ledger, storage)
    return compacted_plan


def finish_compaction(plan: Plan, folder: Path, storage: Storage) -> None:
    """Complete an interrupted compaction: rename the new file if the ledger describes it.

    Otherwise the new file is deleted, and compaction starts over.
    """
    assert plan.adapter is not None
    files, [shard] = ShardFiles(plan, folder, storage), plan.shards
    compacted_path = files.compacted(shard)
    if not compacted_path.exists():
        return
    if plan.adapter.is_undecided or not files.has_size_and_header(shard, compacted_path):
        storage.remove(compacted_path)
    else:
        storage.rename(compacted_path, files.partial(shard))


def _ranks(plan: Plan, file: int) -> dict[str, int]:
    """Return the rank of each module: the number of its last nonzero direction, at least 1."""
    ranks = {}
    for unit, factors in _factors(plan):
        a, _ = _matrices(factors, _read(file, unit.offset, unit.nbytes))
        nonzero_directions = np.flatnonzero(np.any(a << 1, axis=(0, 2)))  # -0.0 is zero
        ranks[unit.name] = int(nonzero_directions[-1]) + 1 if len(nonzero_directions) else 1
    return ranks


def _factors(plan: Plan) -> Iterator[tuple[Unit, Factors]]:
    for unit in plan.units:
        if isinstance(unit.expression, Factors):
            yield unit, unit.expression


def _matrices(factors: Factors, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits of A as (matrices, rank, inputs), and of B as (outputs, rank, matrices)."""
    pair_count, rank = len(factors.pairs), factors.rank
    bits = data.view(f"u{BITS[factors.dtype] // 8}")
    elements_of_a = pair_count * rank * factors.inputs
    return (
        bits[:elements_of_a].reshape(pair_count, rank, factors.inputs),
        bits[elements_of_a:].reshape(factors.outputs, rank, pair_count),
    )


def _read(file: int, offset: int, nbytes: int) -> np.ndarray:
    data = np.empty(nbytes, np.uint8)
    bytes_read = 0
    while bytes_read < nbytes:
        piece_bytes = os.preadv(file, [data[bytes_read:].data], offset + bytes_read)
        if not piece_bytes:
            raise OSError(f"the adapter's file ends at {offset + bytes_read} bytes")
        bytes_read += piece_bytes
    return data


def _write(
    before: Plan,
    after: Plan,
    ledger: Ledger,
    old: int,
    new: int,
    storage: Storage,
    on_progress: Callable[[int, int], None],
) -> list[UnitCommit]:
    """Write the new file, and return its units' rows for the ledger."""
    unit_commits = []
    measurements_by_name = {
        row["name"]: measurements for row, measurements in ledger.units.measurements()
    }
    progress = ledger.units.progress()
    storage.write(new, after.shards[0].header, 0)
    for unit, new_unit in zip(before.units, after.units, strict=True):
        hashes, measurements = progress[unit.number].hashes, measurements_by_name.get(unit.name)
        if isinstance(unit.expression, Factors) and isinstance(new_unit.expression, Factors):
            factor_bits = _read(old, unit.offset, unit.nbytes)
            rank = new_unit.expression.rank
            a, b = _matrices(unit.expression, factor_bits)
            factor_bits = np.concatenate([a[:, :rank].reshape(-1), b[:, :rank].reshape(-1)])
            storage.write(new, factor_bits.view(np.uint8).data, new_unit.offset)
            hashes = hash_block(factor_bits.view(np.uint8).data)
            if measurements is not None:
                energies = measurements["intended"], measurements["change"]
                measured_rows = new_unit.expression.measured(*energies).tolist()
                measurements = UnitMeasurements.empty(measurements.models).plus(measured_rows)
        else:
            for piece_start in range(0, unit.nbytes, COPIED_AT_ONCE):
                piece_size = min(COPIED_AT_ONCE, unit.nbytes - piece_start)
                storage.write(
                    new,
                    _read(old, unit.offset + piece_start, piece_size).data,
                    new_unit.offset + piece_start,
                )
        unit_commits.append(
            UnitCommit(
                number=new_unit.number,
                hashes=hashes,
                input_hashes=b"",
                checksum=unit_checksum(hashes),
                seconds=0.0,
                measurements=measurements,
            )
        )
        on_progress(new_unit.offset + new_unit.nbytes, after.output_bytes)
    return unit_commits
