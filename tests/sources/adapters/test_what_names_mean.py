"""Names of one tensor have one meaning; where two tensors have it, none is guessed."""

from __future__ import annotations

import pytest

from resumerge.sources.adapters.model_names import ModelNames, meaning

SAME = [
    ("language_model.model.layers.0.q_proj.weight", "model.language_model.layers.0.q_proj.weight"),
    ("visual.blocks.1.attn.qkv.weight", "model.visual.blocks.1.attn.qkv.weight"),
    ("vision_tower.vision_model.norm.weight", "model.vision_tower.norm.weight"),
    ("language_model.lm_head.weight", "lm_head.weight"),
    ("embed_out.weight", "lm_head.weight"),
    ("h.3.attn.c_attn.weight", "transformer.h.3.attn.c_attn.weight"),
    ("vit.encoder.layer.2.attention.attention.key.bias", "vit.layers.2.attention.k_proj.bias"),
    (
        "model.layers.0.block_sparse_moe.experts.7.w3.weight",
        "model.layers.0.mlp.experts.7.up_proj.weight",
    ),
]
OTHER = [
    ("model.layers.0.q_proj.weight", "model.layers.1.q_proj.weight"),
    ("vision_tower.layers.0.q_proj.weight", "language_model.layers.0.q_proj.weight"),
    ("encoder.layers.0.fc1.weight", "decoder.layers.0.fc1.weight"),
    ("talker.model.layers.0.q_proj.weight", "thinker.model.layers.0.q_proj.weight"),
    ("lm_head.weight", "lm_head.bias"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_tensor(one: str, other: str) -> None:
    assert meaning(one) == meaning(other)
    assert ModelNames([one]).find(other) == one
    assert ModelNames([other]).find(one) == other


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_names_of_two_tensors(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)
    assert ModelNames([one]).find(other) is None


def test_none_of_two_with_one_meaning_is_guessed() -> None:
    two = ["model.layers.0.q_proj.weight", "model.blocks.0.q_proj.weight"]
    known = ModelNames(two)
    assert known.find("language_model.layers.0.q_proj.weight") is None
    assert [known.find(name) for name in two] == two
