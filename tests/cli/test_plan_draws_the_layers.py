"""``resumerge plan`` shows which layer of the output comes from which model."""

from __future__ import annotations

import io

from rich.console import Console

from resumerge.ui.terminal.plan import WIDTH, show_layer_map
from resumerge.ui.text.layer_map import bar, draw_layer_map, runs

STACKED = [[[0, i]] for i in range(4)] + [[[1, i], [2, i + 1]] for i in range(2, 4)] + [[[1, 0]]]


def drawn(layers: list[list[list[int]]], models: list[str], width: int = 80) -> list[str]:
    file = io.StringIO()
    drawing = draw_layer_map("model.layers", layers, WIDTH)
    Console(file=file, width=width).print(show_layer_map(drawing, models))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_bar_for_each_model_and_the_ranges_in_numbers() -> None:
    assert drawn(STACKED, ["org/base", "org/math", "org/code"]) == [
        "model.layers: 7 layers",
        "output layer  0     6",
        "0 org/base    ████···",
        "1 org/math    ····███",
        "2 org/code    ····██·",
        "output  from",
        "0-3     0: 0-3",
        "4-5     1: 2-3 + 2: 3-4",
        "6       1: 0",
    ]


def test_eighty_layers_fit_a_terminal() -> None:
    layers = [[[0, i]] for i in range(60)] + [[[1, i]] for i in range(40, 80)]
    lines = drawn(layers, ["org/a-model-with-quite-a-long-name-of-its-own-70B", "b"])
    assert lines[0] == "model.layers: 100 layers, 2 per column"
    assert max(map(len, lines)) <= 80 and len(lines) == 7
    assert lines[2].endswith("█" * 30 + "·" * 20)
    assert lines[-2:] == ["0-59    0: 0-59", "60-99   1: 40-79"]
    assert len(bar(layers, 0, 2)) <= WIDTH


def test_runs_end_where_a_layer_is_repeated_or_skipped() -> None:
    layers = [[[0, 0]], [[0, 1]], [[0, 1]], [[0, 3]], [[1, 4]]]
    assert list(runs(layers)) == [
        (0, 1, [(0, 0, 1)]),
        (2, 2, [(0, 1, 1)]),
        (3, 3, [(0, 3, 3)]),
        (4, 4, [(1, 4, 4)]),
    ]
