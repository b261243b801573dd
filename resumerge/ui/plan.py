"""``resumerge plan`` for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.ui.sizes import show_seconds, show_size


def show_plan(document: dict[str, Any]) -> RenderableType:
    """The plan's figures; its problems are printed by the caller."""
    if not document["units"]:
        return Text("Nothing can be planned yet:", "red")
    facts = Table.grid(padding=(0, 2))
    facts.add_row("method", document["method"])
    facts.add_row(
        "output",
        f"{document['units']} tensors, {show_size(document['output_bytes'])} in "
        f"{document['shards']} shard{'s' * (document['shards'] != 1)}",
    )
    largest = document["largest_unit"]
    facts.add_row("largest tensor", f"{largest['name']}, {show_size(largest['bytes'])}")
    memory, disk = document["memory"], document["disk"]
    facts.add_row(
        "memory",
        f"peak about {show_size(memory['predicted_peak_rss'])} with {document['threads']} threads; "
        f"budget {show_size(memory['budget'])}",
    )
    facts.add_row("disk", f"{show_size(disk['needed'])} needed, {show_size(disk['free'])} free")
    download = document["download"]
    facts.add_row(
        "download",
        f"{show_size(download['bytes'])} in {download['files']} files"
        if download["files"]
        else "nothing",
    )
    time = document["time"]
    facts.add_row("time", f"about {show_seconds(time['estimate_s'])} ({time['basis']})")
    sources = Table(box=None, padding=(0, 2, 0, 0), title="sources", title_justify="left")
    for name in ("", "model", "kind", "revision", "reads"):
        sources.add_column(name, overflow="fold")
    for number, source in enumerate(document["sources"]):
        sources.add_row(
            str(number),
            source["model"],
            source["kind"],
            (source["revision"] or "")[:12],
            show_size(source["bytes_needed"]),
        )
    parts: list[RenderableType] = [facts, "", sources]
    if document["layers"]:
        parts += ["", _layers(document["layers"])]
    parts += [Text.assemble(("note: ", "yellow"), note) for note in document["notes"]]
    return Group(*parts)


def _layers(layers: list[list[tuple[int, int]]]) -> Table:
    """Runs of consecutive layers: which output layers come from which layers of which source."""
    table = Table(box=None, padding=(0, 2, 0, 0), title="layers", title_justify="left")
    table.add_column("output")
    table.add_column("from source: layers")
    start = 0
    for end in range(1, len(layers) + 1):
        if end < len(layers) and layers[end] == [(s, n + 1) for s, n in layers[end - 1]]:
            continue
        first, last = layers[start], layers[end - 1]
        origin = ", ".join(f"{s}: {a}-{b}" for (s, a), (_, b) in zip(first, last))
        table.add_row(f"{start}-{end - 1}", origin)
        start = end
    return table
