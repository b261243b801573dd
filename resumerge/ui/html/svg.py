"""Plots as SVG that stretches with the page; figures and names stand beside it, in HTML.

A stretched drawing would stretch its text too, and be unreadable on a telephone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from resumerge.report.sizes import show_seconds
from resumerge.report.timeline import Span, Timeline, Value
from resumerge.report.timings import Timing
from resumerge.ui.html.html import Html, join, tag
from resumerge.ui.terminal.plot import nice_ceiling, top_of

HEIGHT = 100
"""Of every drawing, in its own unit; its width is a column a unit."""

Points = list[tuple[float, float]]


def history_chart(
    title: str,
    note: str,
    timeline: Timeline,
    shown: Callable[[float], str],
    value: Value,
    *,
    low: Value | None = None,
    limit: Value | None = None,
    kind: str,
    steps: bool = False,
) -> Html:
    """One quantity over time.

    Args:
        note: said beside the title.
        shown: how a value is written at the axis.
        low: the least of what a column stands for, where `value` is the most.
        limit: drawn as a dashed line, unless it is far above the values.
        kind: the class of the drawing.
        steps: the quantity changes at once, not by and by.
    """
    highest_limit = timeline.largest(limit) if limit else 0.0
    top = top_of(timeline.largest(value), highest_limit)

    def drawn(span: Span) -> Iterator[Html]:
        if span.start:
            yield tag("rect", class_="break", x=span.start - 3, y=0, width=3, height=HEIGHT)
        for points in _pieces(span, value, top, steps):
            yield tag("path", class_="area", d=_area(points))
            if low:
                lows = [p for piece in _pieces(span, low, top, steps) for p in piece]
                yield tag("path", class_="band", d=_line([*points, *reversed(lows)]) + "Z")
            yield tag("path", class_="line", d=_line(points))
        if limit and highest_limit <= top:
            for points in _pieces(span, limit, top, steps=True):
                yield tag("path", class_="limit", d=_line(points))
        if span.lifetime.outcome in ("killed", "oom", "error"):
            yield tag("line", class_="death", x1=span.end, x2=span.end, y1=0, y2=HEIGHT)

    drawing = _svg(
        timeline.columns, kind, top, f"{title}: {note}", *(join(*drawn(s)) for s in timeline.spans)
    )
    return tag(
        "figure",
        tag("figcaption", tag("b", title), " ", tag("span", note, class_="muted")),
        tag("div", _axis(top, shown), drawing, class_="plot"),
    )


def names_of_attempts(timeline: Timeline) -> Html:
    """Below the plots: each attempt's number, end and length."""

    def name(span: Span, room: int) -> Html:
        end = span.lifetime.outcome or "running"
        left, width = 100 * span.start / timeline.columns, 100 * room / timeline.columns
        return tag(
            "span",
            tag("b", f"{span.lifetime.n} "),
            tag("span", end, class_=f"outcome {end}"),
            tag("br"),
            show_seconds(span.lifetime.seconds),
            style=f"left:{left:.2f}%;width:{width:.2f}%",
        )

    nexts = [*(span.start for span in timeline.spans[1:]), timeline.columns]
    names = (name(span, after - span.start) for span, after in zip(timeline.spans, nexts))
    return tag("div", *names, class_="names")


def columns_chart(
    title: str,
    note: str,
    timings: Sequence[Timing],
    shown: Callable[[float], str],
    value: Callable[[Timing], float],
    told: Callable[[Timing], str],
    kind: str,
) -> Html:
    """One column a group of tensors.

    Args:
        told: what is said of a group where the pointer rests on it.
    """
    top = nice_ceiling(max(map(value, timings), default=0.0))
    bars = (
        tag(
            "rect",
            tag("title", told(timing)),
            x=f"{column + 0.1:g}",
            width=0.8,
            y=_number(HEIGHT * (1 - value(timing) / top)),
            height=_number(HEIGHT * value(timing) / top),
        )
        for column, timing in enumerate(timings)
    )
    return tag(
        "figure",
        tag("figcaption", tag("b", title), " ", tag("span", note, class_="muted")),
        tag(
            "div",
            _axis(top, shown),
            _svg(len(timings), kind, top, f"{title}: {note}", *bars),
            class_="plot",
        ),
    )


def names_of_columns(names: Sequence[str], most: int = 11) -> Html:
    """Below columns: their names, the first and last and as many between as have room."""
    count = len(names)
    every = max(1, -(-count // most))
    chosen = [i for i in range(0, count, every) if count - 1 - i >= every * 0.75] + [count - 1]
    return tag(
        "div",
        *(
            tag(
                "span",
                names[i].rsplit(".", 1)[-1],
                title=names[i],
                style=f"left:{100 * (i + 0.5) / count:.2f}%",
            )
            for i in chosen
        ),
        class_="ticks",
    )


def _svg(width: int, kind: str, top: float, label: str, *inside: Html) -> Html:
    middle = tag("line", class_="grid", x1=0, x2=width, y1=HEIGHT / 2, y2=HEIGHT / 2)
    return tag(
        "svg",
        middle,
        *inside,
        class_=kind,
        viewBox=f"0 0 {width} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        data_top=f"{top:g}",
    )


def _axis(top: float, shown: Callable[[float], str]) -> Html:
    return tag("div", *(tag("span", shown(top * f)) for f in (1, 0.5, 0)), class_="axis")


def _pieces(span: Span, value: Value, top: float, steps: bool) -> list[Points]:
    """The line through a span's values, in pieces where nothing was measured between."""
    pieces: list[Points] = []
    level = None
    for column, cell in enumerate(span.cells, span.start):
        before, level = level, value(cell)
        if level is not None:
            y = HEIGHT * (1 - level / top)
            if before is None:
                pieces.append([(column, y)])
            pieces[-1] += [(column, y), (column + 1, y)] if steps else [(column + 0.5, y)]
    if level is not None:
        pieces[-1].append((span.end, pieces[-1][-1][1]))
    return pieces


def _line(points: Points) -> str:
    """A path through points, without those that lie in the middle of a level line."""
    kept = [
        point
        for i, point in enumerate(points)
        if not (0 < i < len(points) - 1 and points[i - 1][1] == point[1] == points[i + 1][1])
    ]
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in kept)


def _area(points: Points) -> str:
    (left, _), (right, _) = points[0], points[-1]
    return f"{_line(points)}V{HEIGHT}H{_number(left)}Z" if right > left else ""


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
