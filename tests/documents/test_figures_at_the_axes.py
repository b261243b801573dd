"""Promise: a tick at an axis is drawn where its figure is in the picture, however small."""

from __future__ import annotations

import re

import pytest
from pages import read_page

from resumerge.options.types import parse_size
from resumerge.ui.html.charts import timing_charts
from resumerge.ui.html.environment import render

COMMITTED = {"blocks": 1, "committed_blocks": 1}
SECONDS = {"s": 1, "min": 60, "h": 3600}


def seconds_of(text: str) -> float:
    parts = re.findall(r"([0-9.e-]+) (s|min|h)\b", text)
    assert parts, text
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def rate_of(text: str) -> float:
    number, unit = re.fullmatch(r"([0-9.]+) (.*)/s", text).groups()  # type: ignore[union-attr]
    return float(number) * (1 if unit == "B" else parse_size(f"1{unit}"))


@pytest.mark.parametrize(
    "seconds", [0.0003, 0.004, 0.021, 0.13, 0.24, 1.3, 2.2, 9, 40, 75, 130, 2200, 30_000]
)
def test_every_tick_is_where_it_says(seconds: float) -> None:
    sizes = (int(1.4 * seconds) + 1, 5)
    units = [
        {"name": f"model.layers.{n}.mlp.weight", "nbytes": nbytes, "seconds": seconds, **COMMITTED}
        for n, nbytes in enumerate(sizes)
    ]
    page = read_page(render("timings.html.j2", timings=timing_charts(units)))
    charts = page.all("div", "plot")
    assert len(charts) == 2
    for chart, read in zip(charts, (seconds_of, rate_of)):
        [axis], [drawing] = chart.all("div", "axis"), chart.all("svg")
        top = float(drawing.attributes["data-top"])
        ticks = [read(span.whole_text) for span in axis.all("span")]
        assert ticks == pytest.approx([top, top / 2, 0], rel=0.01)
