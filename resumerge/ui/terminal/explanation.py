"""``resumerge explain`` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.printable import printable
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.text.explanation import (
    ValueColumn,
    columns,
    constants,
    heading,
    meanings,
    span,
    title,
)

Document = Mapping[str, Any]

_BARS = "▁▂▃▄▅▆▇█"


def show_explanation(document: Document) -> RenderableType:
    """Return the document of ``explain --json`` for a terminal."""
    parts: list[RenderableType] = []
    for stage in document["stages"]:
        parts += [Prose(title(stage), style="bold")]
        for group in stage["groups"]:
            parts += [*_group(group), ""]
        parts += [Prose(line, style="dim") for line in meanings(stage)]
        parts += [""] if stage["parameters"] else []
    parts += [Prose(printable(note), "note:", "yellow") for note in document["notes"]]
    return Group(*parts)


def _group(group: Document) -> Iterator[RenderableType]:
    yield Prose(heading(group), style="cyan")
    value_columns = columns(group)
    for line in constants(value_columns):
        yield Prose(f"  {line}")
    varying_columns = [column for column in value_columns if not column.is_constant]
    if not varying_columns:
        return
    for column in varying_columns:
        if sum(number is not None for number in column.numbers) > 1:
            yield Text(f"  {_bars(column, group['rows'])} {printable(column.label)}")
    yield _table(group["rows"], varying_columns)


def _bars(column: ValueColumn, rows: Sequence[Document]) -> str:
    """Return a bar for each layer, with a height in proportion to its value."""
    bars = ""
    for row, height in zip(rows, column.heights):
        bar = "·" if height is None else _BARS[round(height * (len(_BARS) - 1))]
        bars += bar * max(1, len(row["layers"] or ()))
    return bars


def _table(rows: Sequence[Document], found: Sequence[ValueColumn]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("layer", overflow="fold")
    for column in found:
        table.add_column(printable(column.label), justify="right", overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(span(row["layers"]), *(column.cells[number] for column in found))
    return table
