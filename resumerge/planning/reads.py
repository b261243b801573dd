"""The ranges of files that a merge reads, in order. Reading ahead and the estimates use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resumerge.kernels.blocks import BlockRun
from resumerge.planning.plan import Unit
from resumerge.tensors import Merged, Spilled, Step, Stored, Tensor, spilled_in
from resumerge.tensors.target import BLOCK_RUN_BYTES

Read = tuple[Stored, int, int]
"""The elements ``first:last`` of a stored tensor."""

KEPT_BYTES = 8 << 20
"""The most bytes of a one-block unit's stored tensors that are fetched once for all passes."""


def reads_of_blocks(unit: Unit, first: int = 0) -> Iterator[list[Read]]:
    """Yield the reads of each block run of a unit, from block `first` on.

    Tensors that are read once and held for many blocks are not included: see `reads_once`.
    """
    blocks_of_run = unit.blocks_at_once(BLOCK_RUN_BYTES)
    for first_block in range(first, unit.blocks if unit.numel else 0, blocks_of_run):
        [(start, stop)] = unit.block_run(
            range(first_block, min(first_block + blocks_of_run, unit.blocks))
        ).ranges()
        yield list(_stored(unit.expression.reads(start, stop)))


def reads_of_pass(tensor: Merged | Spilled, *, sample: bool) -> Iterator[list[Read]]:
    """Yield the reads of each block run of one pass over the blocks of a tensor."""
    blocks_of_run = tensor.blocks_at_once(tensor.block_elements, BLOCK_RUN_BYTES)
    for first_block in range(0, tensor.blocks, blocks_of_run):
        indices = range(first_block, min(first_block + blocks_of_run, tensor.blocks))
        block_run = BlockRun.of(tensor.numel, tensor.block_elements, indices, sample=sample)
        yield [
            read
            for operand in tensor.children()
            for start, stop in block_run.ranges()
            for read in _stored(operand.reads(start, stop))
        ]


def is_kept(unit: Unit) -> bool:
    """Return whether a unit's inputs are fetched once and stay in memory until it is computed."""
    nodes = list(unit.expression.nodes()) if unit.blocks == 1 else []
    has_passes = any(isinstance(node, Merged) and node.needs_statistics for node in nodes)
    is_spilled = any(isinstance(node, Spilled) for node in nodes)
    stored_bytes = sum(node.nbytes for node in nodes if isinstance(node, Stored))
    return has_passes and not is_spilled and stored_bytes <= KEPT_BYTES


def passes_of_unit(unit: Unit) -> Iterator[Iterator[list[Read]]]:
    """Yield every pass of a unit: the computation of its blocks, and the passes before it.

    A pass yields the reads of each block run. A kept unit (`is_kept`) has only the first pass.
    """
    yield reads_of_blocks(unit)
    if not is_kept(unit):
        yield from _passes_before_blocks(unit)


def reads_once(nodes: Iterable[Tensor], steps: Iterable[Step]) -> Iterator[Read]:
    """Yield the reads of tensors that are held for many blocks, and of steps.

    Args:
        nodes: the nodes of the expressions of a plan, each once.
        steps: the steps of the plan, each once.
    """
    for step in steps:
        yield from _stored(step.reads())
    for node in nodes:
        yield from _stored(node.reads_once())


def _passes_before_blocks(unit: Unit) -> Iterator[Iterator[list[Read]]]:
    """Yield the passes that write scratch files, and the scans of methods."""
    if unit.numel == 0:
        return
    for spilled in spilled_in(unit.expression):
        yield reads_of_pass(spilled, sample=False)
    for node in dict.fromkeys(unit.expression.nodes()):
        if isinstance(node, Merged) and node.needs_statistics:
            samples = node.merge_method.samples(node.context)
            for scan in range(node.merge_method.passes(node.context) - 1):
                yield reads_of_pass(node, sample=scan < samples)


def _stored(reads: Iterator[tuple[Tensor, int, int]]) -> Iterator[Read]:
    for leaf, first, last in reads:
        if isinstance(leaf, Stored) and first < last:
            yield leaf, first, last
