"""Lists in config.json that speak of layers are read, and written in their own form."""

from __future__ import annotations

from typing import Any

import pytest

from resumerge.layout import read_layer_list, write_layer_list

ORIGINS = [0, 1, 2, 1, 2, 3]

# what config.json says of four layers, and of six layers that come from these
CASES: dict[str, tuple[Any, Any]] = {
    "layer_types": (["a", "b", "c", "d"], ["a", "b", "c", "b", "c", "d"]),
    "no_rope_layers": ([1, 1, 0, 1], [1, 1, 0, 1, 0, 1]),
    "mlp_only_layers": ([1, 2], [1, 2, 3, 4]),
    "cross_attention_layers": ([0], [0]),
    "fullatt_block_indexes": ([3], [5]),
    "attn_layer_indices": ([], []),
    "block_types": (["r", "r", "a"], ["r", "r", "a", "r", "a", "r"]),
    "layer_pattern": (["x", "y"], ["x", "y"]),
    "attention_types": ([[["g", "l"], 2]], [[["g", "l", "g", "l", "g", "l"], 1]]),
}


@pytest.mark.parametrize("key", CASES)
def test_a_list_is_cut_in_its_own_form(key: str) -> None:
    before, after = CASES[key]
    entries = read_layer_list(key, before, 4)
    assert entries is not None and len(entries) == 4
    assert write_layer_list(key, before, 4, [entries[layer] for layer in ORIGINS]) == after


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["One", "Two"]),
        ("eos_token_id", [1, 2, 3, 0]),
        ("mrope_section", [1, 1, 2]),
        ("attention_types", [[["g", "l"], 2], "g"]),
        ("attention_types", [[["g", "l"], 1.0], [["g"], 2]]),
        ("rope_scaling", {"factor": [1, 2]}),
        ("layer_norm_eps", 1e-6),
        ("tdnn_layers", [5, 3, 1]),
        ("mlp_only_layers", [1, 4]),
        ("mlp_only_layers", [2, 1]),
        ("mlp_only_layers", [1, 1]),
        ("mlp_only_layers", [True]),
        ("layer_sizes", ["a", "b"]),
        ("layer_types", []),
        ("layer_types", ["a", 1]),
        ("attention_types", [[["g", "l"], 3]]),
        ("attention_types", [[["g", "l"], True], [["g", "l"], True]]),
        ("attention_types", [[["g"], -1], [["g"], 5]]),
    ],
)
def test_what_does_not_speak_of_layers_is_left_alone(key: str, value: Any) -> None:
    assert read_layer_list(key, value, 4) is None


def test_entries_that_repeat_are_read_in_their_order() -> None:
    repeated = [[["g"], 1], [["l", "g"], 2], [["x"], 0]]
    assert read_layer_list("attention_types", repeated, 5) == ["g", "l", "g", "l", "g"]
    assert read_layer_list("attention_types", [[["g", "l"], 2]], 4) == ["g", "l", "g", "l"]


def test_a_cycle_that_no_longer_repeats_is_written_out() -> None:
    assert write_layer_list("layer_pattern", ["x", "y"], 4, ["x", "y", "y"]) == ["x", "y", "y"]
    assert write_layer_list("layer_pattern", ["x", "y"], 4, ["x", "y", "x"]) == ["x", "y"]
    assert write_layer_list("layer_pattern", ["x", "y"], 2, ["x", "y", "x"]) == ["x", "y", "x"]
