"""Where each attempt of a run stands on the time axis of a plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resumerge.report.history import Cell, History, Lifetime

Value = Callable[[Cell], float | None]
"""What a plot shows of a cell; None where it was not measured."""

ROOMY = 12
"""Columns an attempt from which the breaks between attempts may be wide."""


@dataclass(frozen=True)
class Span:
    """The columns of one attempt; those between two spans are a break, whatever time it took."""

    lifetime: Lifetime
    start: int
    cells: Sequence[Cell]

    @property
    def end(self) -> int:
        return self.start + len(self.cells)


@dataclass(frozen=True)
class Timeline:
    """The attempts side by side, each as wide as it was long.

    Only working time takes room: between two attempts may lie a second or a night.

    Args:
        left_out: attempts at the beginning that found no room.
    """

    columns: int
    spans: Sequence[Span]
    left_out: int

    def largest(self, value: Value) -> float:
        """Of a value that cells have, over all cells; 0 where none has it."""
        return max((v for span in self.spans for v in map(value, span.cells) if v), default=0.0)


def lay_out(history: History, columns: int) -> Timeline:
    """Divide the columns of a plot among the attempts; the newest have room in any case."""
    shown = history.lifetimes[-max(1, (columns + 1) // 2) :]
    if not shown:
        return Timeline(columns, (), 0)
    gap = 3 if columns >= ROOMY * len(shown) else 1
    free = columns - gap * (len(shown) - 1)
    least = max(1, min(4, free // (3 * len(shown))))
    widths = _shares([life.seconds for life in shown], free - least * len(shown))
    spans = []
    start = 0
    for lifetime, width in zip(shown, widths):
        spans.append(Span(lifetime, start, lifetime.cells(width + least)))
        start += width + least + gap
    return Timeline(columns, spans, len(history.lifetimes) - len(shown))


def _shares(weights: Sequence[float], whole: int) -> list[int]:
    """Whole numbers in proportion to the weights that add up to the whole."""
    total = sum(weights)
    if not total:
        weights, total = [1.0] * len(weights), float(len(weights))
    shares, seen, given = [], 0.0, 0
    for weight in weights:
        seen += weight
        upto = round(whole * seen / total)
        shares.append(upto - given)
        given = upto
    return shares
