"""Memory, batch size and throughput over time, drawn with characters.

The height of areas has a resolution of an eighth of a character with Unicode, and of a third with
ASCII. Colours carry no information that the characters do not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from resumerge.documents.history import Cell, History
from resumerge.documents.panels import Panel, panels_of
from resumerge.documents.timeline import Span, Timeline, lay_out
from resumerge.sizes import show_seconds, show_size
from resumerge.ui.terminal.prose import Prose

LABELS = 9
"""The columns for labels at the left of the axis."""

WIDEST = 160
"""The most columns of a plot. A wider plot is not easier to read."""

STYLES = {"memory": "cyan", "batch": "magenta", "throughput": "green"}
"""The styles of the panels, by kind."""

OUTCOME_STYLES = {
    "done": "green",
    "interrupted": "yellow",
    "killed": "red",
    "oom": "bold red",
    "error": "red",
}


@dataclass(frozen=True)
class Glyphs:
    """The characters of a plot.

    Args:
        levels: the levels of an area within one character, from empty to full.
        outlier: the mark at the top of an area that is cut off.
    """

    levels: str
    axis: str
    tick: str
    corner: str
    floor: str
    limit: str
    gap: str
    outlier: str


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", "│", "┤", "└", "─", "╌", "┊", "▲")
ASCII = Glyphs(" .:#", "|", "|", "+", "-", "-", ":", "^")


class Plot:
    """The history of a run as rows of characters, as wide as the console.

    Args:
        history: the samples and attempts to draw.
        heights: rows of the memory, batch size and throughput panels.
    """

    def __init__(self, history: History, heights: tuple[int, int, int] = (6, 3, 3)) -> None:
        self._history, self._heights = history, heights

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = min(WIDEST, options.max_width) - LABELS - 2
        if not self._history.points or columns < 10:
            return
        glyphs = ASCII if options.ascii_only else UNICODE
        timeline = lay_out(self._history, columns)
        for panel, height in zip(panels_of(self._history), self._heights):
            yield from _draw(panel, timeline, height, glyphs)
        yield _floor(timeline, glyphs)
        yield _names(timeline)


def _draw(
    panel: Panel, timeline: Timeline, height: int, glyphs: Glyphs
) -> Iterator[RenderableType]:
    top = panel.top(timeline)
    title = f"{panel.title}: {panel.summary}"
    if (largest_value := timeline.largest(panel.value)) > top:
        title += f", {glyphs.outlier} up to {show_size(largest_value)}{panel.unit}"
    if panel.shows_limit(timeline):
        title += f" {glyphs.limit * 2}"
    elif panel.limit:
        title += " (far above the plot)"
    yield Prose(title, style="bold")
    for row in range(height, 0, -1):
        label = {height: show_size(top) + panel.unit}.get(row, "")
        line = Text(no_wrap=True, overflow="crop")
        line.append(f"{label:>{LABELS}} {glyphs.tick if label else glyphs.axis}", "dim")
        column = 0
        for span in timeline.spans:
            _append_gap(line, span.start - column, glyphs)
            for cell in span.cells:
                line.append(*_character(panel, cell, row, height, top, glyphs))
            column = span.end
        yield line


def _append_gap(line: Text, width: int, glyphs: Glyphs) -> None:
    if width > 0:
        line.append(glyphs.gap.center(width), "dim")


def _character(
    panel: Panel, cell: Cell, row: int, height: int, top: float, glyphs: Glyphs
) -> tuple[str, str]:
    """Return the character of one column in a row (1 is the bottom), and its style."""
    value, limit = panel.value(cell), panel.limit(cell) if panel.limit else None
    if value is None:
        return " ", ""
    if value > top and row == height:
        return glyphs.outlier, STYLES[panel.kind]
    steps = len(glyphs.levels) - 1
    filled_steps = round(value / top * height * steps) - (row - 1) * steps
    if row == 1 and value > 0:
        filled_steps = max(1, filled_steps)  # a small value must differ from zero
    if filled_steps > 0:
        is_above = limit is not None and value > limit
        return glyphs.levels[min(steps, filled_steps)], "red" if is_above else STYLES[panel.kind]
    if limit and math.ceil(limit / top * height - 1e-9) == row:
        return glyphs.limit, "yellow"
    return " ", ""


def _floor(timeline: Timeline, glyphs: Glyphs) -> Text:
    line = Text(f"{'0':>{LABELS}} {glyphs.corner}", "dim", no_wrap=True, overflow="crop")
    column = 0
    for span in timeline.spans:
        line.append(" " * (span.start - column) + glyphs.floor * len(span.cells))
        column = span.end
    return line


def _names(timeline: Timeline) -> Text:
    """Return a line with the number, outcome and seconds of each attempt, as far as they fit."""
    label = f"+{timeline.left_out}" if timeline.left_out else "attempt"
    line = Text(f"{label:>{LABELS}}  ", "dim", no_wrap=True, overflow="crop")
    line_end = LABELS + 2
    for span, next_span in zip(timeline.spans, [*timeline.spans[1:], None]):
        start = LABELS + 2 + span.start
        width = (LABELS + 2 + (next_span.start if next_span else timeline.columns)) - start
        name = _name(span, width - (next_span is not None))
        line.append(" " * max(0, start - line_end))
        line.append(name, OUTCOME_STYLES.get(span.lifetime.outcome or "", ""))
        line_end = max(start, line_end) + len(name)
    return line


def _name(span: Span, width: int) -> str:
    lifetime = span.lifetime
    number, end = str(lifetime.n), lifetime.outcome or "running"
    for text in (f"{number} {end}, {show_seconds(lifetime.seconds)}", f"{number} {end}", number):
        if len(text) <= width:
            return text
    return ""
