"""Which layers of the output come from which model, as bars and ranges of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Origin = Sequence[Sequence[int]]
"""(source number, its layer) of every input of one layer of the output."""


def bar(layers: Sequence[Origin], source: int, each: int = 1) -> str:
    """One character for every `each` layers: filled if one of them comes from the source."""
    used = [any(number == source for number, _ in layer) for layer in layers]
    return "".join("█" if any(used[i : i + each]) else "·" for i in range(0, len(used), each))


def runs(
    layers: Sequence[Origin],
) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """(first, last, [(source, its first, its last)]) of every run of consecutive layers."""
    start = 0
    for end in range(1, len(layers) + 1):
        after = [[source, layer + 1] for source, layer in layers[end - 1]]
        if end < len(layers) and [list(origin) for origin in layers[end]] == after:
            continue
        pairs = zip(layers[start], layers[end - 1])
        yield start, end - 1, [(source, first, last) for (source, first), (_, last) in pairs]
        start = end


def span(first: int, last: int) -> str:
    """Layers as ``3`` or ``3-7``, which includes the last."""
    return str(first) if first == last else f"{first}-{last}"
