"""Promise: a tensor that is tied to another is read there, and only where the model ties it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_up_plans import TOKENS, WIDTH, llama, tensor
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model

from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.tied_weights import find_tensor, is_computed, is_tied_copy, untied_head

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
PLAIN = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}


def without(folder: Path, name: str, config: Mapping[str, Any]) -> Source:
    """Write a model without one of its tensors, and return it opened."""
    tensors = random_tensors(llama_shapes(LLAMA), 0)
    del tensors[name]
    write_model(folder, tensors, {**PLAIN, **config})
    return open_source(ModelRef(str(folder), str(folder)))


@pytest.mark.parametrize(
    ("says", "tied"),
    [
        ({"tie_word_embeddings": True}, True),
        ({}, True),
        ({"tie_word_embeddings": False}, False),
        ({"text_config": {"tie_word_embeddings": True}}, True),
        ({"text_config": {"tie_word_embeddings": False}}, False),
        ({"tie_word_embeddings": True, "text_config": {"tie_word_embeddings": False}}, True),
    ],
)
def test_a_head_that_is_missing_is_the_embedding_unless_it_is_not_tied(
    says: dict[str, Any], tied: bool, tmp_path: Path
) -> None:
    source = without(tmp_path, HEAD, says)
    found = find_tensor(source, HEAD)
    assert (found and found.name) == (EMBEDDING if tied else None)
    assert is_tied_copy(source, HEAD) == (tied and bool(says))
    assert not is_tied_copy(source, EMBEDDING)


def test_what_is_neither_a_head_nor_an_embedding_is_tied_to_nothing(tmp_path: Path) -> None:
    source = without(tmp_path, "model.norm.weight", {"tie_word_embeddings": True})
    assert find_tensor(source, "model.norm.weight") is None


def test_a_model_says_that_its_head_is_its_own(tmp_path: Path) -> None:
    missing = "model.norm.weight"
    assert untied_head(without(tmp_path / "own", missing, {"tie_word_embeddings": False})) == HEAD
    assert untied_head(without(tmp_path / "tied", missing, {"tie_word_embeddings": True})) is None
    assert untied_head(without(tmp_path / "mute", missing, {})) is None


@pytest.mark.parametrize(
    ("name", "shape"),
    [("vision.output.weight", (WIDTH, WIDTH)), ("score.output.weight", (TOKENS,))],
    ids=["of a layer", "of one dimension"],
)
def test_a_head_has_a_row_for_each_token(name: str, shape: tuple[int, ...]) -> None:
    assert untied_head(llama("a", others=[tensor(name, shape)])) == HEAD


def test_where_two_could_be_meant_none_is() -> None:
    other = tensor("decoder.embed_tokens.weight", (TOKENS, WIDTH))
    ties = {"tie_word_embeddings": True}
    assert find_tensor(llama("a", without=[HEAD], config=ties), HEAD)
    assert find_tensor(llama("a", without=[HEAD], others=[other], config=ties), HEAD) is None
    assert untied_head(llama("a", others=[tensor("embed_out.weight", (TOKENS, WIDTH))])) is None


@pytest.mark.parametrize(
    ("name", "shape", "computed"),
    [
        ("h.0.attn.bias", (1, 1, 8, 8), True),
        ("h.0.attn.bias", (8,), False),
        ("h.0.attn.masked_bias", (), True),
        ("layers.0.self_attn.rotary_emb.inv_freq", (4,), True),
        ("embeddings.position_ids", (1, 8), True),
        ("embeddings.position_ids.weight", (1, 8), False),
    ],
)
def test_a_buffer_is_computed_and_a_bias_is_not(
    name: str, shape: tuple[int, ...], computed: bool
) -> None:
    assert is_computed(tensor(name, shape)) is computed
