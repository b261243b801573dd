"""Memory, batch size and throughput over time, drawn with characters.

Areas in eighths of a character where the terminal knows Unicode, in thirds of one where not. All
that colours say is said by characters too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from resumerge.report.history import Cell, History
from resumerge.report.sizes import show_seconds, show_size
from resumerge.report.timeline import Span, Timeline, Value, lay_out

LABELS = 9
"""Columns for the figures at the left axis."""

WIDEST = 160
"""Columns. A wider plot is no easier to read."""

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
        levels: of an area within one character, from empty to full.
    """

    levels: str
    axis: str
    tick: str
    corner: str
    floor: str
    limit: str
    gap: str


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", "│", "┤", "└", "─", "╌", "┊")
ASCII = Glyphs(" .:#", "|", "|", "+", "-", "-", ":")


@dataclass(frozen=True)
class Panel:
    """One quantity over time.

    Args:
        title: what it is, with its most telling figures.
        value: of a cell, drawn as an area.
        limit: of a cell, drawn as a line; None for none.
    """

    title: str
    style: str
    value: Value
    unit: str = ""
    limit: Value | None = None


class Plot:
    """A run's history as rows of characters, as wide as the console lets it be."""

    def __init__(self, history: History, heights: tuple[int, int, int] = (6, 3, 3)) -> None:
        """
        Args:
            heights: rows of the memory, batch size and throughput panels.
        """
        self._history, self._heights = history, heights

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = min(WIDEST, options.max_width) - LABELS - 2
        if not self._history.points or columns < 10:
            return
        glyphs = ASCII if options.ascii_only else UNICODE
        timeline = lay_out(self._history, columns)
        for panel, height in zip(_panels(self._history), self._heights):
            yield from _draw(panel, timeline, height, glyphs)
        yield _floor(timeline, glyphs)
        yield _names(timeline)


def _panels(history: History) -> list[Panel]:
    last = history.points[-1]
    alive = history.lifetimes[-1].outcome is None
    peak = max(point.rss_high for point in history.points)
    now = f"{show_size(last.rss_high)} now, " if alive else ""
    working = sum(life.seconds for life in history.lifetimes)
    speed = f"mean {show_size(last.done / working)}/s" if working else ""
    return [
        Panel(
            f"memory: {now}peak {show_size(peak)}, budget {show_size(last.budget)}",
            "cyan",
            lambda cell: cell.rss_high,
            limit=lambda cell: cell.budget,
        ),
        Panel(
            f"batch size: {show_size(last.batch_high)} at {'present' if alive else 'the end'}",
            "magenta",
            lambda cell: cell.batch_high,
        ),
        Panel(f"throughput: {speed}", "green", lambda cell: cell.rate, unit="/s"),
    ]


def top_of(largest: float, limit: float) -> float:
    """Where a vertical axis ends: above all values, and above the limit unless that is far off."""
    return nice_ceiling(max(largest, limit if limit <= 4 * largest else 0.0))


def nice_ceiling(value: float) -> float:
    """The next number above that is easily read: 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8, times 10**n."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * power for step in steps if step * power >= value * (1 - 1e-9))


def _draw(panel: Panel, timeline: Timeline, height: int, glyphs: Glyphs) -> Iterator[Text]:
    limit = timeline.largest(panel.limit) if panel.limit else 0.0
    top = top_of(timeline.largest(panel.value), limit)
    title = panel.title
    if panel.limit and limit > top:
        title += " (far above the picture)"
    elif panel.limit:
        title += f" {glyphs.limit * 2}"
    yield Text(title, "bold", no_wrap=True, overflow="ellipsis")
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
    """What stands in a row, counted from 1 at the bottom, of one column, and its style."""
    value, limit = panel.value(cell), panel.limit(cell) if panel.limit else None
    if value is None:
        return " ", ""
    steps = len(glyphs.levels) - 1
    level = round(value / top * height * steps) - (row - 1) * steps
    if row == 1 and value > 0:
        level = max(1, level)  # little is not nothing
    if level > 0:
        over = limit is not None and value > limit
        return glyphs.levels[min(steps, level)], "red" if over else panel.style
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
    """Below each attempt its number, how it ended and how long it took, as far as there is room."""
    lead = f"{timeline.left_out} before" if timeline.left_out else "attempt"
    line = Text(f"{lead:>{LABELS}}  ", "dim", no_wrap=True, overflow="crop")
    ends = LABELS + 2
    for span, after in zip(timeline.spans, [*timeline.spans[1:], None]):
        start = LABELS + 2 + span.start
        room = (LABELS + 2 + (after.start if after else timeline.columns)) - start
        name = _name(span, room - (after is not None))
        line.append(" " * max(0, start - ends))
        line.append(name, OUTCOME_STYLES.get(span.lifetime.outcome or "", ""))
        ends = max(start, ends) + len(name)
    return line


def _name(span: Span, room: int) -> str:
    life = span.lifetime
    number, end = str(life.n), life.outcome or "running"
    for text in (f"{number} {end}, {show_seconds(life.seconds)}", f"{number} {end}", number):
        if len(text) <= room:
            return text
    return ""
