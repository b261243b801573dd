"""A drawing of which layers of the output come from which model."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.documents.layers import Origin, bar, runs, span

WIDTH = 50
"""Most columns of the drawing; of a deeper model, a column stands for several layers."""

_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def show_layer_map(stack: str, layers: Sequence[Origin], models: Sequence[str]) -> RenderableType:
    """A bar for each model over the layers of the output, and the same ranges as numbers.

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
        title += f", {each} per column"
    return Group(Text(title, "italic"), picture, ranges)


def _ruler(count: int, columns: int) -> str:
    last = str(count - 1)
    return "0" + last.rjust(columns - 1) if columns > len(last) else "0"
