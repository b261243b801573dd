"""The columns of a plot, divided among the attempts of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resumerge.documents.history import Cell, History, Lifetime

Value = Callable[[Cell], float | None]
"""A function that returns a quantity of a cell; None if it was not measured."""

COLUMNS_FOR_WIDE_GAPS = 12
"""The least columns per attempt at which the gaps between attempts are wide."""


@dataclass(frozen=True)
class Span:
    """The columns of one attempt. The width of the gap before the next span has no meaning."""

    lifetime: Lifetime
    start: int
    cells: Sequence[Cell]

    @property
    def end(self) -> int:
        return self.start + len(self.cells)


@dataclass(frozen=True)
class Timeline:
    """The attempts side by side. The width of an attempt is proportional to its time.

    Args:
        left_out: number of attempts at the beginning that do not fit.
    """

    columns: int
    spans: Sequence[Span]
    left_out: int

    def values(self, value: Value) -> list[float]:
        """Return the values of all cells, without None."""
        of_cells = (value(cell) for span in self.spans for cell in span.cells)
        return [v for v in of_cells if v is not None]

    def largest(self, value: Value) -> float:
        """Return the largest value of all cells; 0 if no cell has a value."""
        return max(self.values(value), default=0.0)


def lay_out(history: History, columns: int) -> Timeline:
    """Divide the columns of a plot among the attempts. If not all fit, the oldest are left out."""
    lifetimes = history.lifetimes[-max(1, (columns + 1) // 2) :]
    if not lifetimes:
        return Timeline(columns, (), 0)
    gap_width = 3 if columns >= COLUMNS_FOR_WIDE_GAPS * len(lifetimes) else 1
    free_columns = columns - gap_width * (len(lifetimes) - 1)
    least_width = max(1, min(4, free_columns // (3 * len(lifetimes))))
    widths = _shares(
        [lifetime.seconds for lifetime in lifetimes], free_columns - least_width * len(lifetimes)
    )
    spans = []
    start = 0
    for lifetime, width in zip(lifetimes, widths):
        spans.append(Span(lifetime, start, lifetime.cells(width + least_width)))
        start += width + least_width + gap_width
    return Timeline(columns, spans, len(history.lifetimes) - len(lifetimes))


def _shares(weights: Sequence[float], whole: int) -> list[int]:
    """Return integers that are proportional to the weights and add up to `whole`."""
    total = sum(weights)
    if not total:
        weights, total = [1.0] * len(weights), float(len(weights))
    shares, weight_so_far, assigned_total = [], 0.0, 0
    for weight in weights:
        weight_so_far += weight
        share_end = round(whole * weight_so_far / total)
        shares.append(share_end - assigned_total)
        assigned_total = share_end
    return shares
