"""The plots of memory, batch size and throughput over time: texts, values and vertical axes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from resumerge.documents.history import History
from resumerge.documents.timeline import Timeline, Value
from resumerge.sizes import show_size

OUTLIER = 3.0
"""A value above this multiple of the 90th percentile is cut off; it would flatten the plot."""


@dataclass(frozen=True)
class Panel:
    """One quantity over time.

    Args:
        kind: ``memory``, ``batch`` or ``throughput``.
        summary: the most important figures; empty if there are none.
        meaning: a description of the quantity.
        value: returns a cell's largest value in bytes.
        low: returns a cell's least value in bytes; None if only the largest is drawn.
        limit: returns a cell's limit in bytes, which is drawn as a line of its own; None for no
            line.
        unit: the text after a size, like ``/s``.
        steps: whether the quantity changes in steps, not gradually.
        clips: whether the axis may end below outliers (`clipped_top`).
    """

    kind: str
    title: str
    summary: str
    meaning: str
    value: Value
    low: Value | None = None
    limit: Value | None = None
    unit: str = ""
    steps: bool = True
    clips: bool = False

    def top(self, timeline: Timeline) -> float:
        """Return the end of the axis: above all values, and above the limit if it is near."""
        if self.clips:
            return clipped_top(timeline.values(self.value))
        largest_value = timeline.largest(self.value)
        largest_limit = timeline.largest(self.limit) if self.limit else 0.0
        return nice_ceiling(
            max(largest_value, largest_limit if largest_limit <= 4 * largest_value else 0.0)
        )

    def shows_limit(self, timeline: Timeline) -> bool:
        """Return whether the axis reaches the limit."""
        return self.limit is not None and timeline.largest(self.limit) <= self.top(timeline)


def panels_of(history: History) -> list[Panel]:
    """Return the panels of a run; an empty list if there are no samples.

    On a cluster, only the driver writes samples. Without batch sizes in them, there is no panel of
    batch sizes.
    """
    if not history.points:
        return []
    last_point = history.points[-1]
    is_alive = history.lifetimes[-1].outcome is None
    current_rss = f"{show_size(last_point.rss_high)} now, " if is_alive else ""
    seconds = sum(lifetime.seconds for lifetime in history.lifetimes)
    committed_bytes = max(last_point.done, history.lifetimes[-1].done_after)
    panels = [
        Panel(
            "memory",
            "memory of the driver" if history.of_driver else "memory",
            f"{current_rss}peak {show_size(history.peak)}, budget {show_size(last_point.budget)}",
            "resident set size",
            lambda cell: cell.rss_high,
            low=lambda cell: cell.rss_low,
            limit=lambda cell: cell.budget,
            steps=False,
        ),
        Panel(
            "batch",
            "batch size",
            f"{show_size(last_point.batch_high)} {'now' if is_alive else 'at the end'}",
            "largest output computed before a commit",
            lambda cell: cell.batch_high or None,
        ),
        Panel(
            "throughput",
            "throughput",
            f"mean {show_size(committed_bytes / seconds)}/s" if seconds else "",
            "output committed",
            lambda cell: cell.rate,
            unit="/s",
            clips=True,
        ),
    ]
    if any(point.batch_high for point in history.points) or not history.of_driver:
        return panels
    return [panel for panel in panels if panel.kind != "batch"]


def clipped_top(values: Iterable[float]) -> float:
    """Return the end of an axis on which a few outliers do not flatten all other values.

    The axis ends above the largest value. If the largest value is more than `OUTLIER` times the
    90th percentile of the positive values, the axis ends above that percentile.
    """
    sorted_values = sorted(value for value in values if value > 0)
    if not sorted_values:
        return nice_ceiling(0.0)
    percentile, largest_value = sorted_values[int(0.9 * len(sorted_values))], sorted_values[-1]
    return nice_ceiling(
        largest_value if largest_value <= OUTLIER * percentile else 1.5 * percentile
    )


def nice_ceiling(value: float) -> float:
    """Return the least round number that is not below a value; 1 for zero and below.

    Round numbers are 1, 1.5, 2, 2.5, 3, 4, 5, 6 and 8, times a power of ten.
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * power for step in steps if step * power >= value * (1 - 1e-9))
