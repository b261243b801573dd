"""What the page of a run and the outputs of notebook cells are made of; the look: report.css."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from resumerge.ui.html.html import Html, tag


def card(*inside: object) -> Html:
    """Parts with their style, to stand within another page."""
    return tag("div", style(), tag("main", *inside, class_="resumerge"))


def style() -> Html:
    """The rules that everything here needs."""
    return tag("style", Html(files(__package__).joinpath("report.css").read_text("utf-8")))


def section(title: str, *inside: object) -> Html:
    """Parts below a headline."""
    return tag("section", tag("h2", title), *inside)


def outcome(outcome: str, text: str | None = None) -> Html:
    """How something ended, in its colour."""
    return tag("span", text or outcome, class_=f"outcome {outcome}")


def table(names: Sequence[str], rows: Iterable[Sequence[object]], *, wrap: bool = False) -> Html:
    """A row for each; the names are its head, unless all are empty.

    Args:
        wrap: the cells hold sentences, which may be broken into lines.
    """
    head = tag("thead", tag("tr", *(tag("th", name) for name in names))) if any(names) else None
    body = (tag("tr", *(tag("td", value) for value in row)) for row in rows)
    kind = "table wrap" if wrap else "table"
    return tag("div", tag("table", head, tag("tbody", *body)), class_=kind)


def bar(share: float) -> Html:
    """How much of something is done."""
    return tag(
        "div",
        tag("div", style=f"width:{100 * share:.2f}%"),
        class_="bar",
        role="progressbar",
        aria_valuenow=f"{100 * share:.0f}",
    )


def tiles_of(tiles: Iterable[tuple[str, str, str]]) -> Html:
    """Facts side by side: the name of each, its value, and what is to be said of that."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", tag("b", value), " ", tag("span", more)))
            for name, value, more in tiles
        ),
    )
