"""How much memory a merge takes, from the plan alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from resumerge.buckets.address import is_bucket, scheme_of
from resumerge.planning.backend import needs_torch
from resumerge.planning.estimates.streaming import streamed_kinds
from resumerge.planning.plan import Plan, Unit
from resumerge.remote.range_reader import AHEAD_BYTES
from resumerge.sizes import show_size
from resumerge.tensors import Adapted, Gathered, Merged, Rounded, Step, steps_of, stored_in
from resumerge.tensors.adapters.adapted import MATMUL_BYTES
from resumerge.tensors.buffers import REUSED
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.generated import Drawn
from resumerge.tensors.tensor import RUN_BYTES

BASE_RSS = 261_000_000
"""Bytes that the process takes besides its plan and its blocks with torch loaded (measured; another
build of torch takes another amount, which a run measures before it computes)."""

KERNELS_RSS = 54_000_000
"""The same without torch: the kernels compute, or the plan only copies bytes."""

RANDOM_RSS = 4_600_000
"""What NumPy's generators take, which random tensors load."""

PROMPTS_RSS = 6_500_000
"""What the library tokenizers takes, which splits the prompts that steps are made of."""

UNIT_BYTES, NODE_BYTES = 2_600, 700
"""Of a unit, and of each tensor in its tree that is more than a rounding: objects, names, hashes,
the ledger's rows (measured on 20,000 units: 2.7 KB for a copy, 3.9 KB for linear of two models)."""

BUCKETS_RSS, FURTHER_CLOUD_RSS = 40_000_000, 30_000_000
"""What the library takes that makes the requests to buckets (measured: 26 to 33 MB), and that of
each further kind of cloud, which shares some modules with it (measured: 15 to 29 MB)."""

UPLOAD_RSS = 30_000_000
"""What the part of a shard takes that is sent to a mirror in a bucket (measured: 9 to 29 MB)."""

CLIENT_RSS = {"hub": 18_000_000}
"""What the client of a server takes that files are streamed from, by the kind of source; boto3 is
counted above."""

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
        steps: what comes before the blocks: what steps are made of, and then they themselves.
        least_steps: the same with one thread.
    """

    base: int
    held: int
    least: int
    blocks: int
    traffic: int
    steps: int = 0
    least_steps: int = 0

    @property
    def peak_rss(self) -> int:
        """With all threads."""
        return self.base + max(self.held + self.blocks, self.steps)

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
        return self.base + max(self.held + self.least, self.least_steps)


def memory_need(plan: Plan, threads: int, mirror: str | None = None) -> MemoryNeed:
    """What a plan takes with so many threads.

    Args:
        mirror: address of the run's mirror, if it has one.
    """
    reads = sum(sum(plan.bytes_needed(number).values()) for number in range(len(plan.sources)))
    return MemoryNeed(
        base=_base(plan, mirror),
        held=held_at_once(plan)
        + vocabulary_bytes(plan)
        + across_blocks(plan)
        + AHEAD_BYTES * bool(streamed_kinds(plan)),
        least=blocks_bytes(plan, 1),
        blocks=blocks_bytes(plan, threads),
        traffic=reads + plan.output_bytes,
        steps=_steps_bytes(plan, threads),
        least_steps=_steps_bytes(plan, 1),
    )


def steps_of_plan(plan: Plan) -> set[Step]:
    """The steps that come before the blocks of a plan."""
    return {step for unit in plan.units for step in steps_of(unit.expression)}


def _steps_bytes(plan: Plan, threads: int) -> int:
    steps = steps_of_plan(plan)
    return max((max(s.planning_bytes, s.working_bytes(threads)) for s in steps), default=0)


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
        passing = _run_elements(unit) * FLOAT32 > REUSED
        kept = kept if passing else max(kept, nbytes)
        for _ in range(min(unit.blocks, 2 * threads + 1)):
            in_line.append(nbytes if passing else 0)
            at_once = max(at_once, sum(sorted(in_line)[-threads:]))
    return threads * kept + at_once


def vocabulary_bytes(plan: Plan) -> int:
    """What tokenizers take that are read, and the maps of rows made from them, each once."""
    if plan.vocabulary is None:
        return 0
    maps = {id(node.rows): node.rows.nbytes for node in plan.nodes() if isinstance(node, Gathered)}
    return sum(maps.values()) + TOKEN_BYTES * len(plan.tokenizers) * plan.vocabulary.rows


def across_blocks(plan: Plan) -> int:
    """Bytes of what is held from block to block, and of what multiplies the matrices in it."""
    return held_limit(plan) + MATMUL_BYTES * any(isinstance(n, Adapted) for n in plan.nodes())


def held_limit(plan: Plan) -> int:
    """Most bytes that are held for the blocks of several units: the matrices of two tensors of each
    adapter, the means of rows, and the results of steps.
    """
    largest: dict[int, int] = {}
    means = 0
    for node in plan.nodes():
        if isinstance(node, Adapted):
            adapter = next(stored_in(node.a)).source
            largest[adapter] = max(largest.get(adapter, 0), node.held_bytes)
        elif isinstance(node, Gathered):
            means += node.held_bytes
    results = sum(step.nbytes for step in steps_of_plan(plan))
    return 2 * sum(largest.values()) + means + results


def whole_tensors(plan: Plan) -> str | None:
    """A note on the largest tensor that must be held whole; None where none must."""
    whole = [
        (_run_bytes(unit), unit.index, node.method)
        for unit in plan.units
        for node in unit.expression.nodes()
        if isinstance(node, Merged)
        and node.merge_method.whole_tensor
        and node.block_elements >= node.numel
    ]
    if not whole:
        return None
    nbytes, index, method = max(whole)
    return (
        f"{method} computes on whole tensors: {plan.units[index].name} alone takes "
        f"{show_size(nbytes)} of memory"
    )


def held_at_once(plan: Plan) -> int:
    """Most bytes of `held_bytes` of a unit and the next one, whose reductions are begun before it
    is done. Those of further units are begun where they need no more.
    """
    held = [held_bytes(unit) for unit in plan.units]
    return max(map(sum, zip(held, [*held[1:], 0])), default=0)


def held_bytes(unit: Unit) -> int:
    """Bytes that reductions over a unit's operands hold until its blocks are computed."""
    return sum(
        node.merge_method.statistics_bytes(node.context)
        for node in unit.expression.nodes()
        if isinstance(node, Merged) and node.blocks > 1
    )


def _run_elements(unit: Unit) -> int:
    blocks = 1 if unit.is_copied else unit.run_blocks(RUN_BYTES)
    return min(unit.numel, blocks * unit.block_elements)


def _run_bytes(unit: Unit) -> int:
    """The buffers of one run of blocks and what its methods take beside them."""
    elements = _run_elements(unit)
    tensor = unit.expression
    if isinstance(tensor, Merged):
        within = tensor.computing_bytes(elements)  # in whole blocks
    else:
        within = tensor.working_bytes(elements)
    return int(elements * (BITS[unit.dtype] // 8) + within)


def _base(plan: Plan, mirror: str | None) -> int:
    base = BASE_RSS if needs_torch(plan) else KERNELS_RSS
    base += UNIT_BYTES * len(plan.units)
    base += NODE_BYTES * sum(not isinstance(node, Rounded) for node in plan.nodes())
    base += RANDOM_RSS * any(isinstance(node, Drawn) for node in plan.nodes())
    base += PROMPTS_RSS * bool(steps_of_plan(plan))
    is_mirrored = mirror is not None and is_bucket(mirror)
    parts = [part for source in plan.sources for part in source.parts.values()]
    clouds = {scheme_of(part.ref.name) for part in parts if part.kind == "bucket"}
    clouds |= {scheme_of(mirror)} if mirror is not None and is_mirrored else set()
    if clouds:
        base += BUCKETS_RSS + FURTHER_CLOUD_RSS * (len(clouds) - 1)
    base += sum(CLIENT_RSS.get(kind, 0) for kind in streamed_kinds(plan))
    return base + UPLOAD_RSS * is_mirrored
