"""The data of a page's charts: axes, SVG paths and columns, for ``charts.html.j2``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resumerge.documents.panels import Panel, clipped_top
from resumerge.documents.timeline import Span, Timeline, Value
from resumerge.documents.timings import Timing, by_kind, by_layer
from resumerge.sizes import counted, show_seconds, show_size, show_tick

HEIGHT = 100
"""The height of every drawing in units of its own. Its width is one unit per column."""

GAP = 3
"""The width of the break before every attempt except the first, in units of a drawing."""

MOST_NAMES = 11
"""The most columns with a name below them."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class AttemptPaths:
    """One attempt in a chart over time.

    Args:
        gap: x of the break before the attempt; None for the first one.
        paths: (CSS class, SVG path data), in the order of drawing.
        death: x of the mark of an attempt that was killed or failed; None for other attempts.
    """

    gap: int | None
    paths: list[tuple[str, str]]
    death: int | None


@dataclass(frozen=True)
class Outlier:
    """A value that is cut off at the top of a chart; `left` is its x in percent of the width."""

    left: float
    label: str


@dataclass(frozen=True)
class ChartBar:
    """A bar of a chart: its top, height and tooltip."""

    y: str
    height: str
    label: str


@dataclass(frozen=True)
class Chart:
    """One drawing with its vertical axis.

    Args:
        kind: the CSS class of the drawing, which sets its colour.
        top: the value at the top of the axis.
        ticks: labels of the axis, from the top down.
    """

    title: str
    note: str
    kind: str
    top: float
    ticks: list[str]
    width: int
    attempts: Sequence[AttemptPaths] = ()
    bars: Sequence[ChartBar] = ()
    outlier: Outlier | None = None
    height: int = HEIGHT


@dataclass(frozen=True)
class Timings:
    """The seconds and rates of layers and kinds of tensors.

    Args:
        layers: names of the layers, which are the columns of the charts.
        labelled: indices of the layers whose names are shown.
        longest: most seconds of a kind.
        fastest: highest rate of a kind in bytes per second.
    """

    charts: list[Chart]
    layers: list[str]
    labelled: list[int]
    kinds: list[Timing]
    longest: float
    fastest: float


def history_chart(panel: Panel, timeline: Timeline) -> Chart:
    """Return the chart of one quantity over time."""
    top = panel.top(timeline)
    description = f"{panel.summary}; {panel.meaning}" if panel.summary else panel.meaning
    if panel.limit:
        limit_is_shown = panel.shows_limit(timeline)
        description += (
            "; dashed: budget" if limit_is_shown else "; the budget is far above the plot"
        )
    return Chart(
        panel.title.capitalize(),
        description,
        panel.kind,
        top,
        _ticks(top, lambda value: show_size(value) + panel.unit),
        timeline.columns,
        [_attempt(panel, span, timeline, top) for span in timeline.spans],
        outlier=_outlier(
            [
                (span.start + column, panel.value(cell))
                for span in timeline.spans
                for column, cell in enumerate(span.cells)
            ],
            top,
            timeline.columns,
            lambda value: show_size(value) + panel.unit,
        ),
    )


def timing_charts(units: Iterable[Mapping[str, Any]]) -> Timings | None:
    """Return the seconds and rates of each layer, as charts, and of each kind of tensor.

    Args:
        units: rows of the ledger's table ``units``, each with some seconds.

    Returns:
        The charts and kinds; None if there are no rows.
    """
    units = list(units)
    layers, kinds = by_layer(units), by_kind(units)
    if not layers:
        return None
    seconds_chart = _bar_chart(
        "Seconds",
        "of computing and writing by layer, sum of all threads",
        "seconds",
        layers,
        lambda timing: timing.seconds,
        show_tick,
    )
    rate_chart = _bar_chart(
        "Bytes per second",
        "of output by layer, per thread",
        "rate",
        layers,
        lambda timing: timing.rate,
        lambda rate: f"{show_size(rate)}/s",
    )
    last_layer = len(layers) - 1
    label_interval = -(-len(layers) // MOST_NAMES)
    return Timings(
        [seconds_chart, rate_chart],
        [timing.name for timing in layers],
        [
            *(
                layer
                for layer in range(0, last_layer + 1, label_interval)
                if last_layer - layer >= label_interval * 0.75
            ),
            last_layer,
        ],
        kinds,
        max(timing.seconds for timing in kinds),
        max(timing.rate for timing in kinds) or 1.0,
    )


def _bar_chart(
    title: str,
    note: str,
    kind: str,
    timings: Sequence[Timing],
    value: Callable[[Timing], float],
    format_tick: Callable[[float], str],
) -> Chart:
    values = list(map(value, timings))
    top = clipped_top(values)
    bars = [
        ChartBar(
            _number(HEIGHT * (1 - min(1.0, value(timing) / top))),
            _number(HEIGHT * min(1.0, value(timing) / top)),
            f"{timing.name}: {show_seconds(timing.seconds)}, {show_size(timing.nbytes)} in "
            f"{counted(timing.tensors, 'tensor')}, {show_size(timing.rate)}/s",
        )
        for timing in timings
    ]
    outlier = _outlier(enumerate(values), top, len(timings), format_tick)
    ticks = _ticks(top, format_tick)
    return Chart(title, note, kind, top, ticks, len(timings), bars=bars, outlier=outlier)


def _outlier(
    values: Iterable[tuple[int, float | None]],
    top: float,
    columns: int,
    format_value: Callable[[float], str],
) -> Outlier | None:
    """Return the largest value with its place, if it is above the top of the axis; else None."""
    values_and_columns = [(value, column) for column, value in values if value is not None]
    value, column = max(values_and_columns, default=(0.0, 0))
    if value <= top:
        return None
    return Outlier(100 * (column + 0.5) / columns, format_value(value))


def _ticks(top: float, format_tick: Callable[[float], str]) -> list[str]:
    return [format_tick(top * share) for share in (1, 0.5, 0)]


def _attempt(panel: Panel, span: Span, timeline: Timeline, top: float) -> AttemptPaths:
    has_died = span.lifetime.outcome in ("killed", "oom", "error")
    return AttemptPaths(
        span.start - GAP if span.start else None,
        list(_paths(panel, span, timeline, top)),
        span.end if has_died else None,
    )


def _paths(panel: Panel, span: Span, timeline: Timeline, top: float) -> Iterator[tuple[str, str]]:
    for points in _pieces(span, panel.value, top, panel.steps):
        yield "area", _area(points)
        if panel.low:
            low_points = [
                point for piece in _pieces(span, panel.low, top, panel.steps) for point in piece
            ]
            yield "band", _line([*points, *reversed(low_points)]) + "Z"
        yield "line", _line(points)
    if panel.limit and panel.shows_limit(timeline):
        for points in _pieces(span, panel.limit, top, steps=True):
            yield "limit", _line(points)


def _pieces(span: Span, value: Value, top: float, steps: bool) -> list[Points]:
    """Return the line through the values of an attempt, in pieces where values are missing."""
    pieces: list[Points] = []
    current_value = None
    for column, cell in enumerate(span.cells, span.start):
        previous_value, current_value = current_value, value(cell)
        if current_value is not None:
            height_from_top = HEIGHT * (1 - min(1.0, current_value / top))
            if previous_value is None:
                pieces.append([(column, height_from_top)])
            pieces[-1] += (
                [(column, height_from_top), (column + 1, height_from_top)]
                if steps
                else [(column + 0.5, height_from_top)]
            )
    if current_value is not None:
        pieces[-1].append((span.end, pieces[-1][-1][1]))
    return pieces


def _line(points: Points) -> str:
    """Return SVG path data through points; points in the middle of a level line are left out."""
    corner_points = [
        point
        for index, point in enumerate(points)
        if not (
            0 < index < len(points) - 1 and points[index - 1][1] == point[1] == points[index + 1][1]
        )
    ]
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in corner_points)


def _area(points: Points) -> str:
    (left, _), (right, _) = points[0], points[-1]
    return f"{_line(points)}V{HEIGHT}H{_number(left)}Z" if right > left else ""


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
