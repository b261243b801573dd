"""``resumerge compare`` for a terminal: the relation of each pair, by kind and by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from resumerge.printable import printable
from resumerge.sizes import counted, show_size, some
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.text.comparison import CAUTION, number, part_in_percent, tokens_sentence

MOST_KINDS, MOST_KEYS = 24, 12
"""The most kinds of tensors, and the most keys of config.json, that are shown."""

_BARS = " ▁▂▃▄▅▆▇█"

Document = Mapping[str, Any]


def show_comparison(document: Document) -> RenderableType:
    """Return the document of ``compare --json`` for a terminal."""
    parts: list[RenderableType] = [_models(document), *_config(document)]
    for pair in document["pairs"]:
        parts += ["", *_pair(document, pair)]
    if document["task_vectors"] is not None:
        parts += ["", *_task_vectors(document)]
    parts += [Prose(printable(note), "note:", "yellow") for note in document["notes"]]
    return Group(*parts)


def _models(document: Document) -> RenderableType:
    table = _table("", "model", "kind", "tensors", "parameters", "size", "types")
    for index, model in enumerate(document["models"]):
        name = model["model"] + (" (base)" if model["role"] == "base" else "")
        table.add_row(
            str(index),
            printable(name),
            model["kind"],
            str(model["tensors"]),
            f"{model['parameters']:,}",
            show_size(model["bytes"]),
            ", ".join(model["dtypes"]),
        )
    return table


def _config(document: Document) -> Iterator[RenderableType]:
    config = document["config"]
    verdict = "the same" if config["same_architecture"] else "different"
    yield Prose(verdict, "architecture", "dim")
    if config["same"]:
        yield Prose("the same", "config.json ", "dim")
        return
    keys = config["differences"]
    differing_keys = [
        f"{entry['key']} ({' | '.join(map(_value, entry['values']))})" for entry in keys
    ]
    line = f"{counted(len(keys), 'different key')}: {some(differing_keys, most=MOST_KEYS)}"
    yield Prose(printable(line), "config.json ", "dim")


def _pair(document: Document, pair: Document) -> Iterator[RenderableType]:
    first_model, second_model = (
        document["models"][pair[key]]["model"] for key in ("first", "second")
    )
    style = "green" if pair["relation"] == "copy" else "bold"
    yield Prose(printable(f"{second_model} beside {first_model}: {pair['relation']}"), style=style)
    for sentence in pair["findings"]:
        yield Prose(f"  - {printable(sentence)}")
    if vocabulary_sentence := tokens_sentence(pair["vocabulary"]):
        yield Prose(f"  - {printable(vocabulary_sentence)}")
    if not pair["total"]["differing"]:
        return
    total = pair["total"]
    yield _kinds(pair["by_kind"], total)
    if line := _layers(pair["by_layer"]):
        yield Prose(line, "relative L2 by layer ", "dim", whole=True)


def _kinds(kinds: Sequence[Document], total: Document) -> RenderableType:
    table = _table("tensors", "", "equal", "differing", "relative L2", "max", "cosine")
    sorted_kinds = sorted(kinds, key=lambda kind: -(kind["relative_l2"] or 0.0))
    for kind in sorted_kinds[:MOST_KINDS]:
        table.add_row(printable(kind["kind"]), *_figures(kind))
    if len(sorted_kinds) > MOST_KINDS:
        table.add_row(f"and {len(sorted_kinds) - MOST_KINDS} more kinds")
    table.add_row("all", *_figures(total), style="bold")
    return table


def _figures(group: Document) -> tuple[str, ...]:
    equal_count = group["relations"].get("equal", 0)
    return (
        str(group["tensors"]),
        str(equal_count),
        part_in_percent(group["differing"], group["elements"]),
        number(group["relative_l2"]),
        number(group["max_abs"]),
        number(group["cosine"], 6),
    )


def _layers(layers: Sequence[Document]) -> str:
    """Return a bar for each layer, in proportion to its relative L2, and the largest value."""
    values = [layer["relative_l2"] or 0.0 for layer in layers]
    largest_value = max(values, default=0.0)
    if len(values) < 2 or not largest_value:
        return ""
    bar_indices = (max(1, round(value / largest_value * (len(_BARS) - 1))) for value in values)
    bars = "".join(
        _BARS[bar_index] if value else "·" for bar_index, value in zip(bar_indices, values)
    )
    highest_layer = layers[values.index(largest_value)]["layer"]
    return f"{bars} (most: {printable(highest_layer)}, {number(largest_value)})"


def _task_vectors(document: Document) -> Iterator[RenderableType]:
    task_vectors = document["task_vectors"]
    yield Text("task vectors", "bold")
    for key, label in (("cosine", "cosine"), ("sign_conflict", "sign conflict")):
        table = _table(label, *map(str, task_vectors["models"]))
        for model, row in zip(task_vectors["models"], task_vectors[key]):
            name = document["models"][model]["model"]
            cells = ("" if value is None else number(value, 4) for value in row)
            table.add_row(printable(f"{model} {name}"), *cells)
        yield table
    yield Prose(CAUTION, style="dim")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        is_right = index > 1 or (index == 1 and not column)
        table.add_column(column, justify="right" if is_right else "left", overflow="fold")
    return table


def _value(text: str | None) -> str:
    return "–" if text is None else text if len(text) <= 40 else text[:37] + "…"
