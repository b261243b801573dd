"""The picture of which layers of the output come from which model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 50
"""Columns of the picture at most; of a deeper model, a column is several layers."""

_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")

Origin = Sequence[Sequence[int]]
"""(source number, its layer) of every input of one layer of the output."""


def show_layer_map(stack: str, layers: Sequence[Origin], models: Sequence[str]) -> RenderableType:
    """A bar for each model over the layers of the output, and the same in numbers.

    Args:
        stack: the list of layers, as its tensors are named.
        layers: one entry for each layer of the output.
        models: the sources' names, by number.
    """
    each = -(-len(layers) // WIDTH)
    columns = -(-len(layers) // each)
    used = sorted({source for layer in layers for source, _ in layer})
    picture = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    picture.add_column(overflow="ellipsis", max_width=26, no_wrap=True)
    picture.add_column(no_wrap=True)
    picture.add_row("output layer", _ruler(len(layers), columns))
    for source in used:
        color = _COLORS[source % len(_COLORS)]
        picture.add_row(Text(f"{source} {models[source]}"), Text(bar(layers, source, each), color))
    ranges = Table(box=None, padding=(0, 2, 0, 0))
    ranges.add_column("output")
    ranges.add_column("from")
    for first, last, origins in runs(layers):
        ranges.add_row(
            span(first, last),
            " + ".join(f"{source}: {span(a, b)}" for source, a, b in origins),
        )
    title = f"{stack}: {len(layers)} layers"
    if each > 1:
        title += f", {each} to a column"
    return Group(Text(title, "italic"), picture, ranges)


def bar(layers: Sequence[Origin], source: int, each: int = 1) -> str:
    """One character for every `each` layers: whether one of them comes from the source."""
    comes = [any(number == source for number, _ in layer) for layer in layers]
    return "".join("█" if any(comes[i : i + each]) else "·" for i in range(0, len(comes), each))


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
    """Layers as ``3`` or ``3-7``, the last included."""
    return str(first) if first == last else f"{first}-{last}"


def _ruler(count: int, columns: int) -> str:
    last = str(count - 1)
    return "0" + last.rjust(columns - 1) if columns > len(last) else "0"
