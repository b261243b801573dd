"""How much is fetched from servers while a merge streams, from the plan alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.planning.reads import Read, is_kept, passes_of_unit, reads_of_plan_once
from resumerge.remote.expected_ranges import ExpectedRanges, Range
from resumerge.tensors import Merged, Stored, Tensor
from resumerge.tensors.dtypes import nbytes


def streamed_kinds(plan: Plan) -> set[str]:
    """The kinds of the sources, or their parts, that have files which are read and streamed."""
    return {
        source.part_of(name)[0].kind
        for number, source in enumerate(plan.sources)
        for name in plan.bytes_needed(number)
        if source.is_streamed(name)
    }


def streamed_bytes(plan: Plan) -> Counter[SourceFileKey]:
    """Bytes that are fetched of each streamed file, what is read several times as often as that.

    A selection by magnitude reads its operands once or twice more where its guess is wrong, which
    is rare, and not known before.
    """
    found: Counter[SourceFileKey] = Counter()
    if not streamed_kinds(plan):
        return found

    def add(steps: Iterable[Iterable[Read]]) -> None:
        for piece in ExpectedRanges(map(_ranges, steps)):
            found[piece.file] += piece.nbytes

    for unit in plan.units:
        if _is_plain(unit):
            for stored, nbytes in _fetched_of_plain(unit):
                found[stored.source, stored.file] += nbytes
        else:
            for steps in passes_of_unit(unit):
                add(steps)
    for read in reads_of_plan_once(plan):
        add([[read]])
    return Counter(
        {
            (number, name): nbytes
            for (number, name), nbytes in found.items()
            if plan.sources[number].is_streamed(name)
        }
    )


def _is_plain(unit: Unit) -> bool:
    """Whether it is computed from different tensors that lie in files: most units of a large model
    are, and what these read is counted without a look at each block.
    """
    leaves = _leaves(unit)
    return all(isinstance(leaf, Stored) for leaf in leaves) and len(set(leaves)) == len(leaves)


def _fetched_of_plain(unit: Unit) -> Iterator[tuple[Stored, int]]:
    """The tensors that a plain unit is computed from, and the bytes that are fetched of each."""
    tensor, times, sampled = unit.expression, 1, 0
    if isinstance(tensor, Merged) and tensor.needs_statistics and not is_kept(unit):
        samples = tensor.merge_method.samples(tensor.context)
        times = tensor.merge_method.passes(tensor.context) - samples
        sampled = samples * tensor.run(range(tensor.blocks), sample=True).length
    for leaf in _leaves(unit):
        if isinstance(leaf, Stored):
            yield leaf, times * leaf.nbytes + nbytes(leaf.dtype, sampled)


def _leaves(unit: Unit) -> list[Tensor]:
    tensor = unit.expression
    return [o.unrounded for o in tensor.operands] if isinstance(tensor, Merged) else [tensor]


def _ranges(reads: Iterable[Read]) -> Iterator[Range[SourceFileKey]]:
    for stored, first, last in reads:
        start, length = stored.byte_range(first, last)
        yield (stored.source, stored.file), start, start + length
