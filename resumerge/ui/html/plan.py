"""``resumerge.plan(…)`` as a notebook's cell shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.errors import Problem
from resumerge.report.sizes import counted, show_seconds, show_size
from resumerge.ui.html.html import Html, join, tag
from resumerge.ui.html.parts import card, outcome, section, table, tiles_of
from resumerge.ui.terminal.host import choice_rows, host_rows
from resumerge.ui.terminal.layer_map import bar, runs, span

Document = Mapping[str, Any]

MOST_COLUMNS = 64
"""Characters of a layer map; more layers share them."""


def fragment(document: Document) -> Html:
    """The plan, to stand within another page."""
    problems = [Problem(**problem) for problem in document["problems"]]
    return card(
        _head(document) if document["units"] else None,
        section("To be mended first", *(tag("pre", str(problem)) for problem in problems))
        if problems
        else None,
        _sources(document) if document["sources"] else None,
        *(_layers(found, document["sources"]) for found in document.get("layer_maps", ())),
        section(
            "This machine",
            table(
                ("", ""),
                ((tag("b", what), fact) for what, fact in host_rows(document["host"])),
                wrap=True,
            ),
        ),
        section(
            "What was chosen because of it",
            table(
                ("", "", "because", "to choose otherwise"),
                (
                    (tag("b", what), chosen, why, tag("code", _in_python(option)))
                    for what, chosen, why, option in choice_rows(document["choices"])
                ),
                wrap=True,
            ),
        ),
        *(tag("p", tag("b", "note: "), note) for note in document.get("notes", ())),
    )


def _head(document: Document) -> Html:
    memory, disk, download = document["memory"], document["disk"], document["download"]
    shards, time = document["shards"], document["time"]
    fit = "it can be run" if not document["problems"] else "it cannot be run yet"
    state = "done" if not document["problems"] else "failed"
    tiles = (
        (
            "output",
            show_size(document["output_bytes"]),
            f"{counted(document['units'], 'tensor')}, {counted(shards, 'shard')}",
        ),
        ("time", show_seconds(time["estimate_s"]), "about"),
        (
            "peak memory",
            show_size(memory["predicted_peak_rss"]),
            f"budget {show_size(memory['budget'])}",
        ),
        ("disk", show_size(disk["needed"]), f"{show_size(disk['free'])} free"),
        (
            "download",
            show_size(download["bytes"]) if download["files"] else "nothing",
            counted(download["files"], "file") if download["files"] else "",
        ),
    )
    return tag(
        "header",
        tag("h1", f"Plan: {document['method']} ", outcome(state, fit)),
        tiles_of(tiles),
        tag("p", f"Time: {time['basis']}.", class_="muted"),
    )


def _in_python(option: str) -> str:
    """``--memory SIZE`` as the argument of a function; a value that is named, named too."""
    name, _, value = option.lstrip("-").partition(" ")
    return f"{name.replace('-', '_')}={'…' if value.isupper() else repr(value)}"


def _sources(document: Document) -> Html:
    rows = (
        (
            str(number),
            tag("code", source["model"]),
            source["kind"],
            tag("code", (source["revision"] or "")[:12]),
            show_size(source["bytes_needed"]),
        )
        for number, source in enumerate(document["sources"])
    )
    counted = ", ".join(f"{count} of {stack}" for stack, count in document["stacks"].items())
    same = f"Layers: {counted}; each is made of the same layer of every model."
    return section(
        "Sources",
        table(("", "model", "kind", "revision", "reads"), rows),
        None if document["layer_maps"] or not counted else tag("p", same, class_="muted"),
    )


def _layers(found: Document, sources: Sequence[Document]) -> Html:
    """Which layer of the output comes from which model."""
    layers = [tuple((a, b) for a, b in layer) for layer in found["layers"]]
    each = -(-len(layers) // MOST_COLUMNS)
    used = sorted({number for layer in layers for number, _ in layer})
    pictures = (
        (str(number), tag("code", sources[number]["model"]), tag("code", bar(layers, number, each)))
        for number in used
    )
    ranges = (
        (span(first, last), " + ".join(f"{number}: {span(a, b)}" for number, a, b in origins))
        for first, last, origins in runs(layers)
    )
    return section(
        f"{found['stack']}: {len(layers)} layers",
        join(table(("", "model", "gives"), pictures), table(("output layer", "from"), ranges)),
    )
