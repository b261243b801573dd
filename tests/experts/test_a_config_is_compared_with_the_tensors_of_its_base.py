"""Promise: what config.json says of a base is compared with its tensors, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from made_up_plans import tensor

from resumerge.experts.upcycling.dense_models import FIELDS, OUTSIDE, STACK, wrong_fields
from resumerge.tensors import Tensor

CONFIG = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "intermediate_size": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
}


def tensors(head: int = 2, last: int = 12) -> dict[str, Tensor]:
    """Return the matrices of a base, whose last layer has the inner width `last`."""
    found: dict[str, Tensor] = {OUTSIDE[0]: tensor(OUTSIDE[0], (20, 8))}
    for layer, wide in enumerate((12, last)):
        for part, rows in (
            ("mlp.gate_proj", wide),
            ("self_attn.q_proj", 4 * head),
            ("self_attn.k_proj", head),
        ):
            name = f"{STACK}.{layer}.{part}.weight"
            found[name] = tensor(name, (rows, 8))
    return found


def wrong(of: dict[str, Tensor] | None = None, **config: Any) -> list[tuple[str, str]]:
    return [*wrong_fields({**CONFIG, **config}, of or tensors(), 2)]


def test_one_that_is_right_has_no_wrong_field() -> None:
    """A correct config may have one head for all keys, or heads that are no share of the width."""
    assert wrong() == wrong(head_dim=None) == []
    assert wrong(tensors(head=3), head_dim=3) == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_number_that_the_tensors_do_not_have_is_named(name: str) -> None:
    [(expected, found)] = wrong(**{name: 2 * CONFIG[name]}, head_dim=2)
    assert expected.startswith(name) and expected.endswith("which the tensors have")
    assert found.startswith(name) and found.endswith(
        str(2 * CONFIG[name] * (1 + ("heads" in name)))
    )


@pytest.mark.parametrize("value", [0, -1, None, True, "8", 8.0])
@pytest.mark.parametrize("name", FIELDS)
def test_what_is_no_number_is_named_alone(name: str, value: Any) -> None:
    said = "none" if value is None else value
    assert wrong(**{name: value}) == [(f"{name}: a number, 1 or more", f"{name}: {said}")]


def test_a_layer_that_differs_from_the_others_is_named() -> None:
    assert wrong(tensors(last=16)) == [
        ("intermediate_size: 16, which the tensors have", "intermediate_size: 12")
    ]


def test_a_tensor_that_is_no_matrix_is_named() -> None:
    name = f"{STACK}.1.mlp.gate_proj.weight"
    [found] = wrong({**tensors(), name: tensor(name, (96,))})
    assert found == (f"{name}: a matrix", "the shape [96]")
