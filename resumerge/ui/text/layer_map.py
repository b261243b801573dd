"""The models that the layers of the output come from, as bars and ranges of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Origin = Sequence[Sequence[int]]
"""(source number, its layer) of every input of one layer of the output."""


@dataclass(frozen=True)
class LayerDrawing:
    """A drawing of the models that the layers of the output come from.

    Args:
        stack: the list of layers, as its tensors are named.
        count: layers of the output.
        each: number of layers for which one character of a bar stands.
        bars: (source number, one character for every `each` layers) of every source that is used.
        ranges: (layers of the output, layers of the sources) as text with numbers.
    """

    stack: str
    count: int
    each: int
    bars: tuple[tuple[int, str], ...]
    ranges: tuple[tuple[str, str], ...]


def draw_layer_map(stack: str, layers: Sequence[Origin], columns: int) -> LayerDrawing:
    """Return the drawing of a list of layers.

    Args:
        stack: the list of layers, as its tensors are named.
        layers: one entry for each layer of the output.
        columns: most characters of a bar.
    """
    each = -(-len(layers) // columns)
    used = sorted({source for layer in layers for source, _ in layer})
    ranges = (
        (_span(first, last), " + ".join(f"{source}: {_span(a, b)}" for source, a, b in origins))
        for first, last, origins in runs(layers)
    )
    bars = ((source, bar(layers, source, each)) for source in used)
    return LayerDrawing(stack, len(layers), each, tuple(bars), tuple(ranges))


def bar(layers: Sequence[Origin], source: int, each: int = 1) -> str:
    """Return one character for every `each` layers: filled if one of them comes from the source."""
    used = [any(number == source for number, _ in layer) for layer in layers]
    return "".join("█" if any(used[i : i + each]) else "·" for i in range(0, len(used), each))


def runs(
    layers: Sequence[Origin],
) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """Yield (first, last, [(source, its first, its last)]) of every run of consecutive layers."""
    start = 0
    for end in range(1, len(layers) + 1):
        after = [[source, layer + 1] for source, layer in layers[end - 1]]
        if end < len(layers) and [list(origin) for origin in layers[end]] == after:
            continue
        pairs = zip(layers[start], layers[end - 1])
        yield start, end - 1, [(source, first, last) for (source, first), (_, last) in pairs]
        start = end


def _span(first: int, last: int) -> str:
    """Return layers as ``3`` or ``3-7``, which includes the last."""
    return str(first) if first == last else f"{first}-{last}"
