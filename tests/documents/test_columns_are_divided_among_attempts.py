"""Promise: a chart with few columns shows every attempt's extremes and all of its bytes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.documents.history import History, Lifetime, Point
from resumerge.documents.timeline import lay_out

GB = 10**9


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 40)), min_size=1, max_size=20),
    st.integers(1, 300),
    st.integers(0, 2**32).map(Random),
)
def test_columns_lose_no_extreme_and_no_byte(
    lives: list[tuple[float, int]], columns: int, random: Random
) -> None:
    lifetimes, done = [], 0
    for n, (seconds, count) in enumerate(lives):
        before, points = done, []
        for at in sorted(random.uniform(seconds / 9, seconds) for _ in range(count)):
            done += random.randrange(10**9)
            rss, batch = random.randrange(1, 10**9), random.randrange(1, 10**8)
            points.append(Point(at, at, rss, rss, GB, batch, batch, done, 0, 0))
        done += random.randrange(10**9)  # committed after the last sample
        lifetimes.append(Lifetime(n, 0.0, seconds, "done", before, done, tuple(points)))
    timeline = lay_out(History(tuple(lifetimes)), columns)
    end = 0
    for span in timeline.spans:
        assert span.start >= end
        assert span.cells
        end = span.end
        points, cells = span.lifetime.points, span.cells
        if not points:
            continue
        assert max(c.rss_high or 0 for c in cells) == max(p.rss_high for p in points)
        assert min(c.batch_low for c in cells if c.batch_low) == min(p.batch_low for p in points)
        if span.lifetime.seconds > 1e-3:
            width = span.lifetime.seconds / len(cells)
            committed = sum((cell.rate or 0.0) * width for cell in cells)
            expected = span.lifetime.done_after - span.lifetime.done_before
            assert committed == pytest.approx(expected, rel=1e-6, abs=1)
    assert end <= columns
    assert len(timeline.spans) + timeline.left_out == len(lives)
