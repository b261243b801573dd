"""``resumerge plan`` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.printable import printable
from resumerge.sizes import counted, show_estimate, show_size
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.text.accounts import account_lines
from resumerge.ui.text.format import both_ends
from resumerge.ui.text.host import choice_rows, host_rows
from resumerge.ui.text.layer_map import LayerDrawing, draw_layer_map

PLANNING = "opening the models and planning"

WIDTH = 50
"""The most columns of a layer map. For a deeper model, a column stands for several layers."""

_LABELS = 16
"""The columns for labels."""

_NAMES = 26
"""The most columns of a model's name beside a layer map."""

_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
"""The colours of the models in a layer map."""


def show_plan(document: dict[str, Any]) -> RenderableType:
    """Return the figures of a plan. The caller prints the plan's problems."""
    if not document["units"]:
        return Group(
            *_host(document),
            "",
            Text("The merge cannot be planned yet. Fix these problems first:", "red"),
        )
    parts: list[RenderableType] = [*_facts(document), "", *_sources(document)]
    if lines := list(account_lines(document["accounts"])):
        parts += [
            "",
            Text("tensors of the models", "bold"),
            *(Prose(printable(line)) for line in lines),
        ]
    parts += ["", *_host(document)]
    models = [model["model"] for model in (*document["sources"], *document["stages"])]
    for layer_map in document["layer_maps"]:
        parts += [
            "",
            show_layer_map(draw_layer_map(layer_map["stack"], layer_map["layers"], WIDTH), models),
        ]
    parts += [Prose(note, "note:", "yellow") for note in document["notes"]]
    return Group(*parts)


def _facts(document: dict[str, Any]) -> Iterator[RenderableType]:
    yield _row("method", document["method"])
    yield _row(
        "output",
        f"{counted(document['tensors'], 'tensor')}, {show_size(document['output_bytes'])} in "
        f"{counted(document['shards'], 'shard')}",
    )
    if copied_shards := document["copied"]["shards"]:
        copied_bytes = document["copied"]["bytes"]
        yield _row(
            "files",
            f"{counted(copied_shards, 'shard')} ({show_size(copied_bytes)}) copied as the model "
            f"has them, {document['shards'] - copied_shards} "
            f"({show_size(document['output_bytes'] - copied_bytes)}) written anew; "
            f"{show_size(document['read_bytes'])} read",
        )
    if linked_shards := document["linked"]["shards"]:
        yield _row(
            "hard links",
            f"{counted(linked_shards, 'shard')} ({show_size(document['linked']['bytes'])}) "
            "will be the model's own files, and take no space",
        )
    largest_unit = document["largest_unit"]
    yield _row("largest tensor", f"{largest_unit['name']}, {show_size(largest_unit['bytes'])}")
    memory, disk, download = document["memory"], document["disk"], document["download"]
    yield _row(
        "memory",
        f"peak about {show_size(memory['predicted_peak_rss'])} with "
        f"{counted(document['threads'], 'thread')}; budget {show_size(memory['budget'])}",
    )
    if document["stacks"] and not document["layer_maps"]:
        layers = ", ".join(f"{count} of {stack}" for stack, count in document["stacks"].items())
        yield _row("layers", f"{layers}; each is merged from the same layer of every model")
    yield _row("disk", f"{show_size(disk['needed'])} needed, {show_size(disk['free'])} free")
    streamed_note = ""
    if streamed_bytes := download.get("streamed_bytes", 0):
        is_all = streamed_bytes == download["bytes"]
        portion = "" if is_all else f"{show_size(streamed_bytes)} of it "
        streamed_note = f", {portion}streamed and not stored"
    yield _row(
        "download",
        f"{show_size(download['bytes'])} in {counted(download['files'], 'file')}{streamed_note}"
        if download["files"]
        else "nothing",
    )
    time, time_note = document["time"], ", without downloads" if download["files"] else ""
    yield _row("time", f"about {show_estimate(time['estimate_s'])}{time_note} ({time['basis']})")


def _sources(document: dict[str, Any]) -> Iterator[RenderableType]:
    yield Text("sources", "bold")
    for number, source in enumerate(document["sources"]):
        revision = f" at {source['revision'][:12]}" if source["revision"] else ""
        read_size = show_size(source["bytes_needed"])
        text = f"{number} {source['model']}, {source['kind']}{revision}, reads {read_size}"
        yield Prose(printable(text))
    for number, stage in enumerate(document["stages"], len(document["sources"])):
        stage_origin = f"{stage['method']} of {', '.join(stage['models'])}"
        yield Prose(printable(f"{number} {stage['model']}, a stage: {stage_origin}"))


def _host(document: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield lines about the machine, and about the settings that a run derives from it."""
    for name, value in host_rows(document["host"]):
        yield _row(name, value)
    yield ""
    yield Text("chosen", "bold")
    for setting, value_text, reason, option in choice_rows(document["choices"]):
        yield _row(setting, f"{value_text}: {reason} ({option})")


def _row(label: str, text: str) -> RenderableType:
    return Prose(printable(text), f"{label:<{_LABELS - 1}}", indent=_LABELS)


def show_layer_map(drawing: LayerDrawing, models: Sequence[str]) -> RenderableType:
    """Return a bar for each model over the layers of the output, and a table of the ranges.

    Args:
        drawing: the layer map, as `draw_layer_map` returns it.
        models: the sources' names, by number.
    """
    columns = -(-drawing.count // drawing.each)
    picture_table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    picture_table.add_column(no_wrap=True)
    picture_table.add_column(no_wrap=True)
    picture_table.add_row("output layer", _ruler(drawing.count, columns))
    for source, bar in drawing.bars:
        color = _COLORS[source % len(_COLORS)]
        picture_table.add_row(
            Text(both_ends(f"{source} {printable(models[source])}", _NAMES)), Text(bar, color)
        )
    range_table = Table(box=None, padding=(0, 2, 0, 0))
    range_table.add_column("output")
    range_table.add_column("from")
    for row in drawing.ranges:
        range_table.add_row(*row)
    title = f"{drawing.stack}: {drawing.count} layers"
    if drawing.each > 1:
        title += f", {drawing.each} per column"
    return Group(Text(title, "italic"), picture_table, range_table)


def _ruler(count: int, columns: int) -> str:
    last = str(count - 1)
    return "0" + last.rjust(columns - 1) if columns > len(last) else "0"
