"""``resumerge plan`` for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.printable import printable
from resumerge.report.host import choice_rows, host_rows
from resumerge.sizes import counted, show_seconds, show_size
from resumerge.ui.terminal.layer_map import show_layer_map

PLANNING = "opening the models and planning"


def show_plan(document: dict[str, Any]) -> RenderableType:
    """The figures of a plan. The caller prints its problems."""
    if not document["units"]:
        return Group(*_host(document), Text("No plan can be made yet:", "red"))
    facts = Table.grid(padding=(0, 2))
    facts.add_row("method", document["method"])
    facts.add_row(
        "output",
        f"{counted(document['units'], 'tensor')}, {show_size(document['output_bytes'])} in "
        f"{counted(document['shards'], 'shard')}",
    )
    largest = document["largest_unit"]
    facts.add_row("largest tensor", f"{largest['name']}, {show_size(largest['bytes'])}")
    memory, disk = document["memory"], document["disk"]
    facts.add_row(
        "memory",
        f"peak about {show_size(memory['predicted_peak_rss'])} with "
        f"{counted(document['threads'], 'thread')}; "
        f"budget {show_size(memory['budget'])}",
    )
    if document["stacks"] and not document["layer_maps"]:
        layers = ", ".join(f"{count} of {stack}" for stack, count in document["stacks"].items())
        facts.add_row("layers", f"{layers}; each is merged from the same layer of every model")
    facts.add_row("disk", f"{show_size(disk['needed'])} needed, {show_size(disk['free'])} free")
    download = document["download"]
    facts.add_row(
        "download",
        f"{show_size(download['bytes'])} in {counted(download['files'], 'file')}"
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
    parts: list[RenderableType] = [facts, "", sources, "", *_host(document)]
    models = [source["model"] for source in document["sources"]]
    for found in document["layer_maps"]:
        parts += ["", show_layer_map(found["stack"], found["layers"], models)]
    parts += [Text.assemble(("note: ", "yellow"), note) for note in document["notes"]]
    return Group(*parts)


def _host(document: dict[str, Any]) -> list[RenderableType]:
    """The machine, and the choices that a run makes because of it."""
    machine = Table.grid(padding=(0, 2))
    for row in host_rows(document["host"]):
        machine.add_row(*(Text(printable(word)) for word in row))
    table = Table(box=None, padding=(0, 2, 0, 0), title="chosen", title_justify="left")
    for name in ("", "", "because", "override"):
        table.add_column(name, overflow="fold")
    for choice in choice_rows(document["choices"]):
        table.add_row(*(Text(printable(word)) for word in choice))
    return [machine, "", table]
