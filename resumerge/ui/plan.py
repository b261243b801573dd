"""``resumerge plan`` for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.ui.layer_map import show_layer_map
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
    if document["stacks"] and not document["layer_maps"]:
        counted = ", ".join(f"{count} of {stack}" for stack, count in document["stacks"].items())
        facts.add_row("layers", f"{counted}; each is made of the same layer of every model")
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
    models = [source["model"] for source in document["sources"]]
    for found in document["layer_maps"]:
        parts += ["", show_layer_map(found["stack"], found["layers"], models)]
    parts += [Text.assemble(("note: ", "yellow"), note) for note in document["notes"]]
    return Group(*parts)
