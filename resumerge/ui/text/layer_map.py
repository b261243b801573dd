"""The origins of the output's layers, as bars and ranges of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Origin = Sequence[Sequence[int]]
"""(source number, layer of the source) of each input of one layer of the output."""


@dataclass(frozen=True)
class LayerDrawing:
    """A drawing of the origins of the output's layers.

    Args:
        stack: the name of the list of layers, as in the names of its tensors.
        count: the number of layers of the output.
        each: the number of layers for each character of a bar.
        bars: (source number, bar with one character for `each` layers) of each used source.
        ranges: (layers of the output, layers of the sources), as text.
    """

    stack: str
    count: int
    each: int
    bars: tuple[tuple[int, str], ...]
    ranges: tuple[tuple[str, str], ...]


def draw_layer_map(stack: str, layers: Sequence[Origin], columns: int) -> LayerDrawing:
    """Return the drawing of a list of layers.

    Args:
        stack: the name of the list of layers, as in the names of its tensors.
        layers: the origin of each layer of the output.
        columns: the most characters of a bar.
    """
    layer_step = -(-len(layers) // columns)
    used_sources = sorted({source for layer in layers for source, _ in layer})
    range_rows = (
        (
            _span(first, last),
            " + ".join(
                f"{source}: {_span(source_first, source_last)}"
                for source, source_first, source_last in origins
            ),
        )
        for first, last, origins in runs(layers)
    )
    bars = ((source, bar(layers, source, layer_step)) for source in used_sources)
    return LayerDrawing(stack, len(layers), layer_step, tuple(bars), tuple(range_rows))


def bar(layers: Sequence[Origin], source: int, each: int = 1) -> str:
    """Return a character for every `each` layers, filled if one of them comes from the source."""
    used = [any(number == source for number, _ in layer) for layer in layers]
    return "".join("█" if any(used[i : i + each]) else "·" for i in range(0, len(used), each))


def runs(
    layers: Sequence[Origin],
) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """Yield each run of consecutive layers, as (first, last, [(source, its first, its last)])."""
    start = 0
    for end in range(1, len(layers) + 1):
        next_origin = [[source, layer + 1] for source, layer in layers[end - 1]]
        if end < len(layers) and [list(origin) for origin in layers[end]] == next_origin:
            continue
        origin_ends = zip(layers[start], layers[end - 1])
        yield start, end - 1, [(source, first, last) for (source, first), (_, last) in origin_ends]
        start = end


def _span(first: int, last: int) -> str:
    """Return layers as text, like ``3`` or ``3-7``; both ends are included."""
    return str(first) if first == last else f"{first}-{last}"
