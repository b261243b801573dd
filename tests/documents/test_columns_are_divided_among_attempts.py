"""Promise: each attempt in a plot is as wide as it was long; the newest are never left out."""

from __future__ import annotations

import pytest

from resumerge.documents.history import History, Lifetime
from resumerge.documents.timeline import lay_out


def history(*seconds: float) -> History:
    return History(
        tuple(Lifetime(n, 0.0, length, "killed", 0, 0, ()) for n, length in enumerate(seconds, 1))
    )


@pytest.mark.parametrize(
    ("seconds", "columns", "widths", "gap"),
    [
        ((100,), 80, [80], 0),
        ((100, 100), 83, [40, 40], 3),
        ((100, 300), 83, [22, 58], 3),
        ((0, 0, 0), 32, [10, 10, 10], 1),
        ((10_000, 1), 83, [76, 4], 3),
        ((1, 1, 1), 5, [1, 1, 1], 1),
    ],
)
def test_widths_are_in_proportion_and_fill_the_plot(
    seconds: tuple[float, ...], columns: int, widths: list[int], gap: int
) -> None:
    """Even the shortest can be seen."""
    found = lay_out(history(*seconds), columns)
    assert [span.end - span.start for span in found.spans] == widths
    assert [b.start - a.end for a, b in zip(found.spans, found.spans[1:])] == [gap] * (
        len(widths) - 1
    )
    assert (found.spans[0].start, found.spans[-1].end, found.left_out) == (0, columns, 0)


@pytest.mark.parametrize(("columns", "shown"), [(9, 5), (10, 5), (11, 6), (1, 1), (0, 1)])
def test_what_does_not_fit_are_the_oldest(columns: int, shown: int) -> None:
    found = lay_out(history(*range(1, 21)), columns)
    assert [span.lifetime.n for span in found.spans] == list(range(21 - shown, 21))
    assert found.left_out == 20 - shown
    assert lay_out(history(), columns).spans == ()
