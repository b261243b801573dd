"""Check local models: compare files that have a new stamp with the bytes that were read before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Set
from contextlib import closing

from resumerge.digests import HASH_BYTES
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.input_hashes import (
    committed_input_hashes,
    hashed_operands,
    operand_hashes,
)
from resumerge.engine.recovery.touched_sources import ReadBefore
from resumerge.ledger import Ledger
from resumerge.ledger.connection import Row
from resumerge.planning import Estimate, Plan
from resumerge.planning.plan import SourceFileKey, Unit
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import FileStamp
from resumerge.tensors import Merged, stored_in

OnProgress = Callable[[int, int], None]
"""A function that is called with the bytes read so far, and the total bytes to read."""


def touched_files(plan: Plan, ledger: Ledger) -> set[SourceFileKey]:
    """Return the local files whose stamps differ from the stamps in the ledger."""
    stamps_by_model = {row["model"]: json.loads(row["stamps"] or "{}") for row in ledger.sources()}
    touched_keys = set()
    for source_number, source in enumerate(plan.sources):
        for file_name, file in source.files.items():
            model, name_in_model = source.part_of(file_name)
            stamp_in_ledger = FileStamp.of_json(
                stamps_by_model.get(model.ref.text, {}).get(name_in_model)
            )
            if file.stamp and file.stamp.differs(stamp_in_ledger, but_names=source.linked):
                touched_keys.add((source_number, file_name))
    return touched_keys


def changed_files(
    plan: Plan,
    estimate: Estimate,
    ledger: Ledger,
    touched: Set[SourceFileKey],
    on_progress: OnProgress,
) -> set[SourceFileKey]:
    """Return the touched files that differ from the bytes that committed blocks were computed from.

    Only ranges that these blocks read are read again. Reading a file ends at its first difference.

    Raises:
        Resumable: a file cannot be read.
    """
    with closing(SourceReader(plan.sources)) as reader:
        evaluator = Evaluator(plan, estimate, reader)
        evaluator.start_thread()
        differing_files: set[SourceFileKey] = set()
        total_bytes = sum(
            _operand_bytes(unit, n) for unit, _, n, _ in _suspects(plan, ledger, touched)
        )
        bytes_read = 0
        for unit, row, operand, files in _suspects(plan, ledger, touched):
            if files.isdisjoint(differing_files) and _differs(plan, evaluator, unit, row, operand):
                differing_files |= files & touched
            bytes_read += _operand_bytes(unit, operand)
            on_progress(bytes_read, total_bytes)
    return differing_files


def read_before(plan: Plan, ledger: Ledger, touched: Set[SourceFileKey]) -> ReadBefore:
    """Return whether committed blocks have read none, some or all of these files' tensors."""
    block_count = committed_count = 0
    for row in (row for shard in plan.shards for row in ledger.units.all(shard.number)):
        unit = plan.units[row["number"]]
        if any(files & touched for files in hashed_operands(plan, unit).values()):
            block_count += unit.blocks
            committed_count += row["committed_blocks"]
    return "none" if not committed_count else "all" if committed_count == block_count else "some"


def units_of(
    plan: Plan, ledger: Ledger, touched: Set[SourceFileKey], changed: Set[SourceFileKey]
) -> list[int]:
    """Return the numbers of the units that must be computed again after files changed.

    Two kinds of units with committed blocks are returned: units that read changed files, and
    incomplete units that read touched files. The statistics of an incomplete unit depend on blocks
    whose hashes are not in the ledger yet.
    """
    return [
        row["number"]
        for unit, row, _, files in _suspects(plan, ledger, touched)
        if files & changed or row["committed_blocks"] < unit.blocks
    ]


def _suspects(
    plan: Plan, ledger: Ledger, touched: Set[SourceFileKey]
) -> Iterator[tuple[Unit, Row, int, frozenset[SourceFileKey]]]:
    """Yield each operand that reads touched files, of units with committed blocks."""
    for shard in plan.shards:
        for row in ledger.units.all(shard.number):
            unit = plan.units[row["number"]]
            if row["committed_blocks"]:
                for operand, files in hashed_operands(plan, unit).items():
                    if files & touched:
                        yield unit, row, operand, files


def _differs(plan: Plan, evaluator: Evaluator, unit: Unit, row: Row, operand: int) -> bool:
    operand_numbers = list(hashed_operands(plan, unit))
    input_hashes = committed_input_hashes(unit, row)
    if unit.numel == 0:
        return False
    if len(input_hashes) != row["committed_blocks"] * len(operand_numbers) * HASH_BYTES:
        return True
    hashes_before = operand_hashes(
        input_hashes, operand_numbers.index(operand), len(operand_numbers)
    )
    return any(
        evaluator.input_hashes(unit, index, [operand]) != hash_before
        for index, hash_before in enumerate(hashes_before)
    )


def _operand_bytes(unit: Unit, operand: int) -> int:
    """Return the bytes that must be read from files to compare an operand."""
    tensor = unit.expression
    compared_tensor = tensor.operands[operand] if isinstance(tensor, Merged) else tensor
    return sum(stored.nbytes for stored in stored_in(compared_tensor))
