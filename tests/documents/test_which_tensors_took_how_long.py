"""Promise: bytes and seconds of all tensors are added up by layer and by kind, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest

from resumerge.documents.timings import MOST_KINDS, MOST_LAYERS, by_kind, by_layer


def unit(name: str, seconds: float | None = 1.0, done: int = 2) -> dict[str, Any]:
    """Return a row of a tensor of a hundred bytes in two blocks."""
    row = {"name": name, "nbytes": 100, "blocks": 2, "committed_blocks": done}
    return row | {"seconds": seconds}


def test_layers_are_in_the_order_of_the_model() -> None:
    names = [
        "lm_head.weight",
        "model.layers.10.mlp.up_proj.weight",
        "model.layers.2.mlp.up_proj.weight",
        "model.norm.weight",
        "model.layers.2.mlp.down_proj.weight",
        "model.embed_tokens.weight",
    ]
    found = by_layer(map(unit, names))
    assert [timing.name for timing in found] == [
        "model.embed_tokens", "2", "10", "lm_head", "model.norm"
    ]  # fmt: skip
    assert [timing.tensors for timing in found] == [1, 2, 1, 1, 1]
    assert [timing.nbytes for timing in found] == [100, 200, 100, 100, 100]
    assert [timing.seconds for timing in found] == [1, 2, 1, 1, 1]


def test_layers_of_several_stacks_have_the_names_of_both() -> None:
    names = ["encoder.layers.1.a.weight", "decoder.layers.1.a.weight", "decoder.layers.0.a.weight"]
    assert [timing.name for timing in by_layer(map(unit, names))] == [
        "decoder.layers.0", "decoder.layers.1", "encoder.layers.1"
    ]  # fmt: skip


def test_only_what_is_committed_counts() -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    [timing] = by_layer([unit(name, 2.0), unit(name, 1.0, done=1), unit(name, None, done=0)])
    assert (timing.tensors, timing.nbytes, timing.seconds) == (3, 150, 3)
    assert timing.rate == 50
    [idle] = by_kind([unit(name, None, done=0)])
    assert idle.rate == 0


def test_the_same_tensor_of_all_layers_and_experts_is_one_kind() -> None:
    """The kind that took longest comes first."""
    names = [
        *(f"model.layers.{n}.self_attn.q_proj.weight" for n in range(3)),
        *(f"model.layers.{n}.mlp.experts.{m}.w1.weight" for n in range(2) for m in range(2)),
        "model.layers.0.self_attn.q_proj.bias",
    ]
    found = by_kind(map(unit, names))
    assert [(timing.name, timing.tensors) for timing in found] == [
        ("mlp.experts.*.w1", 4), ("self_attn.q_proj", 3), ("self_attn.q_proj.bias", 1)
    ]  # fmt: skip


@pytest.mark.parametrize("more", [0, 1, 7])
def test_what_does_not_fit_is_added_up(more: int) -> None:
    layers = [unit(f"model.layers.{n}.a.weight") for n in range(MOST_LAYERS + more)]
    kinds = [
        unit(f"model.layers.0.{'a' * (n + 1)}.weight", 99 - n) for n in range(MOST_KINDS + more)
    ]
    for found, units, most, what in (
        (by_layer(layers), layers, MOST_LAYERS, "layers"),
        (by_kind(kinds), kinds, MOST_KINDS, "kinds"),
    ):
        assert len(found) == most
        assert sum(timing.tensors for timing in found) == len(units)
        assert sum(timing.nbytes for timing in found) == 100 * len(units)
        assert sum(timing.seconds for timing in found) == sum(row["seconds"] for row in units)
        assert (found[-1].name == f"{more + 1} more {what}") is (more > 0)
        assert found[-1].tensors == more + 1
