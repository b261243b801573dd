"""How long the layers and tensors of a run took, as part of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.report.sizes import counted, show_seconds, show_size, show_tick
from resumerge.report.timings import Timing, by_kind, by_layer
from resumerge.ui.html.html import Html, tag
from resumerge.ui.html.parts import section, table
from resumerge.ui.html.svg import columns_chart, names_of_columns


def timings_section(units: Sequence[Mapping[str, Any]]) -> Html | None:
    """Each layer's seconds and speed as columns, and each kind of tensor's as bars.

    Args:
        units: rows of the ledger's table, each with some seconds; None where there is none.
    """
    layers, kinds = by_layer(units), by_kind(units)
    if not layers:
        return None

    def told(timing: Timing) -> str:
        return (
            f"{timing.name}: {show_seconds(timing.seconds)}, {show_size(timing.nbytes)} in "
            f"{counted(timing.tensors, 'tensor')}, {show_size(timing.rate)}/s"
        )

    longest = max(timing.seconds for timing in kinds)
    fastest = max(timing.rate for timing in kinds)
    rows = (
        (
            tag("code", timing.name),
            str(timing.tensors),
            _bar(timing.seconds / longest, show_seconds(timing.seconds), "seconds"),
            _bar(timing.rate / fastest if fastest else 0, f"{show_size(timing.rate)}/s", "rate"),
        )
        for timing in kinds
    )
    return section(
        "Time by layer and tensor",
        columns_chart(
            "Seconds",
            "of computing and writing by layer, all threads together",
            layers,
            show_tick,
            lambda timing: timing.seconds,
            told,
            "seconds",
        ),
        columns_chart(
            "Bytes a second",
            "of output by layer, of one thread",
            layers,
            lambda rate: f"{show_size(rate)}/s",
            lambda timing: timing.rate,
            told,
            "rate",
        ),
        names_of_columns([timing.name for timing in layers]),
        table(("tensor, over all layers", "number", "seconds", "bytes a second"), rows),
    )


def _bar(share: float, text: str, kind: str) -> Html:
    drawn = tag(
        "svg",
        tag("rect", width=f"{100 * share:.1f}", height=1),
        class_=kind,
        viewBox="0 0 100 1",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    return tag("div", drawn, tag("span", text), class_="measure")
