"""Lists in config.json that speak of layers go with the layers, whatever their form."""

from __future__ import annotations

from typing import Any

import pytest

from resumerge.output.layer_lists import cut_lists

ORIGINS = [0, 1, 2, 1, 2, 3]

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
    "rope_scaling": ({"factor": [1, 2]}, {"factor": [1, 2]}),
    "architectures": (["One", "Two"], ["One", "Two"]),
    "eos_token_id": ([1, 2, 3, 0], [1, 2, 3, 0]),
    "mrope_section": ([1, 1, 2], [1, 1, 2]),
}


@pytest.mark.parametrize("key", CASES)
def test_form(key: str) -> None:
    before, after = CASES[key]
    section = {key: before, "num_hidden_layers": 4}
    cut_lists(section, 4, [({key: before}, layer) for layer in ORIGINS])
    assert section[key] == after


def test_each_entry_is_from_the_model_that_its_layer_comes_from() -> None:
    one, other = {"layer_types": ["a", "b"]}, {"layer_types": ["c", "d", "e"]}
    section: dict[str, Any] = {"layer_types": ["a", "b"]}
    cut_lists(section, 2, [(one, 0), (other, 2), (one, 1), (other, 0), ({}, 1)])
    assert section["layer_types"] == ["a", "e", "b", "c", "b"]


def test_a_list_that_repeats_as_before_stays_short() -> None:
    section: dict[str, Any] = {"block_types": ["r", "a"]}
    cut_lists(section, 4, [(section.copy(), layer) for layer in (0, 1, 2, 3, 2, 3)])
    assert section["block_types"] == ["r", "a"]
