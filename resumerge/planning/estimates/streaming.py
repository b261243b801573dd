"""How much is fetched from servers while a merge streams, from the plan alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from resumerge.planning.plan import Plan, SourceFileKey
from resumerge.planning.reads import Read, passes_of_plan
from resumerge.remote.expected_ranges import ExpectedRanges, Range


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

    def ranges(reads: list[Read]) -> Iterator[Range[SourceFileKey]]:
        for stored, first, last in reads:
            if plan.sources[stored.source].is_streamed(stored.file):
                start, nbytes = stored.byte_range(first, last)
                yield (stored.source, stored.file), start, start + nbytes

    for steps in passes_of_plan(plan):
        for piece in ExpectedRanges(map(ranges, steps)):
            found[piece.file] += piece.nbytes
    return found
