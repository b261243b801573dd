"""How much memory a merge takes, from the plan alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from resumerge.methods import METHODS
from resumerge.planning.backend import needs_torch, rounds_operand, uses_torch
from resumerge.planning.plan import RUN_BLOCKS, Plan, Unit
from resumerge.sizes import show_size
from resumerge.sources.adapters.lora import AdaptedTensor
from resumerge.sources.adapters.overlay import OVERLAY_SCRATCH, overlay_bytes
from resumerge.sources.dtypes import BITS, BY_TORCH_NAME

BASE_RSS = 249_000_000
"""Bytes that the process takes besides its blocks with torch loaded (measured; another build of
torch takes another amount, which a run measures before it computes)."""

KERNELS_RSS = 46_000_000
"""The same without torch: the kernels compute, or the plan only copies bytes."""

REUSED = 64 << 20
"""Bytes: memory of finished blocks up to this size stays with the process for the next ones; what
is larger is given back at once."""

FLOAT32 = 4

SAFETY = 1.05
"""What a budget must hold, of what is predicted."""

TOKEN_BYTES = 500
"""Of a token of a tokenizer that is read: text, number and merges, as Python objects."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of RSS that a merge takes, and what of.

    Args:
        base: the process without its blocks.
        held: what reductions over a tensor hold until it is done.
        least: the blocks of one thread.
        blocks: those of all threads.
        traffic: bytes read and written, which the page cache would like to keep.
    """

    base: int
    held: int
    least: int
    blocks: int
    traffic: int

    @property
    def peak_rss(self) -> int:
        """With all threads."""
        return self.base + self.held + self.blocks

    @property
    def enough(self) -> int:
        """A budget that holds it, though the prediction be a little off."""
        return int(self.peak_rss * SAFETY)

    @property
    def least_enough(self) -> int:
        """A budget that holds one thread."""
        return int(self.least_rss * SAFETY)

    @property
    def least_rss(self) -> int:
        """With one block in flight."""
        return self.base + self.held + self.least


def memory_need(plan: Plan, threads: int) -> MemoryNeed:
    """What a plan takes with so many threads."""
    reads = sum(sum(plan.bytes_needed(number).values()) for number in range(len(plan.sources)))
    return MemoryNeed(
        base=_base(plan),
        held=_held_at_once(plan) + vocabulary_bytes(plan) + overlay_bytes(plan.sources),
        least=blocks_bytes(plan, 1),
        blocks=blocks_bytes(plan, threads),
        traffic=reads + plan.output_bytes,
    )


def blocks_bytes(plan: Plan, threads: int) -> int:
    """The most that the runs of blocks take that threads compute at once.

    Runs of the usual size leave their memory to the next ones: in the end each thread has as much
    as the largest took. Larger ones (whole tensors) count while they are computed; a thread may be
    busy with one while the others go on with those that are next in line.
    """
    kept, at_once = 0, 0
    in_line: deque[int] = deque(maxlen=2 * threads + 1)
    for unit in plan.units:
        nbytes = _run_bytes(unit)
        passing = min(unit.numel, RUN_BLOCKS * unit.block_elements) * FLOAT32 > REUSED
        kept = kept if passing else max(kept, nbytes)
        for _ in range(min(unit.blocks, 2 * threads + 1)):
            in_line.append(nbytes if passing else 0)
            at_once = max(at_once, sum(sorted(in_line)[-threads:]))
    return threads * kept + at_once


def vocabulary_bytes(plan: Plan) -> int:
    """What tokenizers take that are read, and the maps of rows made from them, each once."""
    if plan.vocabulary is None:
        return 0
    operands = (operand for unit in plan.units for operand in unit.expression.operands)
    maps = {id(o.rows.rows): o.rows.rows.nbytes for o in operands if o.rows}
    return sum(maps.values()) + TOKEN_BYTES * len(plan.tokenizers) * plan.vocabulary.rows


def whole_tensors(plan: Plan) -> str | None:
    """A note on the largest tensor that must be held whole; None where none must."""
    whole = [
        unit
        for unit in plan.units
        if unit.expression.method != "copy"
        and METHODS[unit.expression.method].whole_tensor
        and unit.block_elements >= unit.numel
    ]
    if not whole:
        return None
    nbytes, index = max((_run_bytes(unit), unit.index) for unit in whole)
    largest = plan.units[index]
    return (
        f"{largest.expression.method} computes on whole tensors: {largest.name} alone takes "
        f"{show_size(nbytes)} of memory"
    )


def _held_at_once(plan: Plan) -> int:
    """The most of a unit and the next one, whose reductions are begun before it is done."""
    held = [_held_bytes(unit, plan.seed) for unit in plan.units]
    return max(map(sum, zip(held, [*held[1:], 0])), default=0)


def _held_bytes(unit: Unit, seed: int) -> int:
    if unit.expression.method == "copy" or unit.blocks == 1:
        return 0
    context = unit.context(seed)
    return METHODS[unit.expression.method].statistics_bytes(context)


def _run_bytes(unit: Unit) -> int:
    """The buffers of one run of blocks and what its method takes beside them."""
    block = min(unit.numel, unit.block_elements)
    elements = min(unit.numel, RUN_BLOCKS * unit.block_elements)
    operands, cast = unit.expression.operands, unit.expression.cast
    stored = sum(BITS[operand.tensor.dtype] // 8 for operand in operands)
    members = (member for operand in operands for member in operand.tensor.members)
    adapted = any(isinstance(member, AdaptedTensor) for member in members)
    overlay = OVERLAY_SCRATCH if adapted else 0
    if unit.expression.method == "copy":
        return elements * stored + overlay
    stored += sum(BITS[BY_TORCH_NAME[str(cast)]] // 8 for o in operands if rounds_operand(o, cast))
    if any(operand.rows and operand.rows.rows.has_mean for operand in operands):
        stored += 3 * FLOAT32  # rows to take the mean of, and their sums in float64
    stored += BITS[unit.dtype] // 8
    cost = METHODS[unit.expression.method].cost
    scratch = FLOAT32 * (cost.scratch + cost.per_input * len(operands))
    if uses_torch(unit):  # block by block, with inputs in float32
        wide = FLOAT32 * len(operands)
        return overlay + int(elements * stored + block * (wide + scratch))
    return overlay + int(elements * (stored + scratch))


def _base(plan: Plan) -> int:
    return BASE_RSS if needs_torch(plan) else KERNELS_RSS
