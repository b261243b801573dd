"""``resumerge cache`` for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.engine.reports.cache_check import CacheReport
from resumerge.sizes import show_size

_COLOURS = {"intact": "green", "mended": "yellow", "damaged": "red", "missing": "red"}


def show_cache(report: CacheReport) -> RenderableType:
    """Every file that was checked, and its state."""
    table = Table(box=None, pad_edge=False)
    for name in ("model", "file", "size", "state"):
        table.add_column(name, overflow="fold")
    for file in report.files:
        table.add_row(
            f"{file.model}@{file.revision[:8]}",
            file.file,
            show_size(file.bytes),
            Text(file.state, style=_COLOURS[file.state]),
        )
    return Group(table, *(Text(note) for note in report.notes))
