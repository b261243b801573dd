"""Contents of local models: whether files that look changed still have what was read from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Set
from contextlib import closing

from resumerge.digests import HASH_BYTES
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.input_hashes import (
    hashed_operands,
    known_hashes,
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

Moved = Callable[[int, int], None]
"""Is called with bytes that were read, and bytes to read in all."""


def touched_files(plan: Plan, ledger: Ledger) -> set[SourceFileKey]:
    """Return the local files whose stamps are not those that the ledger has."""
    known = {row["model"]: json.loads(row["stamps"] or "{}") for row in ledger.sources()}
    found = set()
    for number, source in enumerate(plan.sources):
        for name, file in source.files.items():
            part, inner = source.part_of(name)
            before = FileStamp.of_json(known.get(part.ref.text, {}).get(inner))
            if file.stamp and file.stamp.differs(before, but_names=source.linked):
                found.add((number, name))
    return found


def changed_files(
    plan: Plan, estimate: Estimate, ledger: Ledger, touched: Set[SourceFileKey], moved: Moved
) -> set[SourceFileKey]:
    """Return the files among `touched` that differ from what committed blocks were computed from.

    Only ranges that were read are read again. A file is read until the first difference.

    Raises:
        Resumable: a file cannot be read.
    """
    with closing(SourceReader(plan.sources)) as reader:
        evaluator = Evaluator(plan, estimate, reader)
        evaluator.start_thread()
        changed: set[SourceFileKey] = set()
        total = sum(_operand_bytes(unit, n) for unit, _, n, _ in _suspects(plan, ledger, touched))
        done = 0
        for unit, row, operand, files in _suspects(plan, ledger, touched):
            if files.isdisjoint(changed) and _differs(plan, evaluator, unit, row, operand):
                changed |= files & touched
            done += _operand_bytes(unit, operand)
            moved(done, total)
    return changed


def read_before(plan: Plan, ledger: Ledger, touched: Set[SourceFileKey]) -> ReadBefore:
    """Return how much of these files' tensors was read before: what is committed, was compared."""
    blocks = committed = 0
    for row in (row for shard in plan.shards for row in ledger.units.all(shard.index)):
        unit = plan.units[row["number"]]
        if any(files & touched for files in hashed_operands(plan, unit).values()):
            blocks += unit.blocks
            committed += row["committed_blocks"]
    return "none" if not committed else "all" if committed == blocks else "some"


def units_of(
    plan: Plan, ledger: Ledger, touched: Set[SourceFileKey], changed: Set[SourceFileKey]
) -> list[int]:
    """Return the numbers of the units to compute again after files changed.

    They were computed from changed files, or in part from touched ones: statistics of a unit that
    is not complete were computed from what has no hash yet.
    """
    return [
        row["number"]
        for unit, row, _, files in _suspects(plan, ledger, touched)
        if files & changed or row["committed_blocks"] < unit.blocks
    ]


def _suspects(
    plan: Plan, ledger: Ledger, touched: Set[SourceFileKey]
) -> Iterator[tuple[Unit, Row, int, frozenset[SourceFileKey]]]:
    """Yield every operand of a committed unit that reads touched files, with the unit's row."""
    for shard in plan.shards:
        for row in ledger.units.all(shard.index):
            unit = plan.units[row["number"]]
            if row["committed_blocks"]:
                for operand, files in hashed_operands(plan, unit).items():
                    if files & touched:
                        yield unit, row, operand, files


def _differs(plan: Plan, evaluator: Evaluator, unit: Unit, row: Row, operand: int) -> bool:
    operands = list(hashed_operands(plan, unit))
    hashes = known_hashes(unit, row)
    if unit.numel == 0:
        return False
    if len(hashes) != row["committed_blocks"] * len(operands) * HASH_BYTES:
        return True
    before = operand_hashes(hashes, operands.index(operand), len(operands))
    return any(
        evaluator.input_hashes(unit, index, [operand]) != expected
        for index, expected in enumerate(before)
    )


def _operand_bytes(unit: Unit, operand: int) -> int:
    """Return the bytes of files that are read again, whatever is computed from them."""
    tensor = unit.expression
    read = tensor.operands[operand] if isinstance(tensor, Merged) else tensor
    return sum(stored.nbytes for stored in stored_in(read))
