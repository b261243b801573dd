"""A model with an adapter merged in gives the logits that it gives with the adapter in peft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import FAMILIES
from merging import merge, tensors_of
from peft import LoraConfig, get_peft_model
from zoo import ARCHITECTURES

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
EVERY = {**ARCHITECTURES, **FAMILIES}
LINEAR: dict[str, Any] = {"target_modules": "all-linear"}
OTHERWISE: dict[str, list[str]] = {
    "mamba": ["in_proj", "x_proj"],  # peft refuses some of their modules
    "phimoe": ["q_proj", "o_proj"],
    "wav2vec2": ["q_proj", "v_proj", "intermediate_dense"],
    "jamba": ["q_proj", "in_proj", "feed_forward.up_proj"],  # others are not asked for a product
    "siglip": ["q_proj", "v_proj", "fc1", "fc2"],
}
"""The targets of architectures of which not every linear layer can have an adapter."""
SAVED: dict[str, list[str]] = {
    "llama": ["lm_head", "embed_tokens"],
    "mistral": ["norm"],
    "gptj": ["lm_head"],
    "gpt_neox": ["lm_head", "embed_in"],
    "bert_classifier": ["classifier"],
    "vit": ["classifier"],
    "dinov2": ["classifier"],
    "llava": ["lm_head"],
    "llava_next": ["multi_modal_projector"],
    "qwen2_vl": ["merger"],
    "qwen3_vl": ["lm_head"],
    "qwen2_audio": ["multi_modal_projector"],
    "idefics3": ["lm_head"],
}
"""Modules that an adapter saves whole."""
HEADS: dict[str, list[str]] = {
    "llama": ["lm_head"],
    "gpt_neox": ["embed_out", "lm_head"],
    "mistral": ["embed_tokens"],
    "olmo2": ["embed_tokens", "lm_head"],
    "vit": ["classifier"],
    "llava": ["lm_head", "q_proj"],
    "llava_onevision": ["embed_tokens"],
}
"""Heads and embeddings that have matrices."""
EXPERTS = ["granitemoe", "gpt_oss", "olmoe", "deepseek_v2", "jamba", "glm4_moe", "qwen3_vl_moe"]
"""Mixtures whose packed experts have matrices."""
PAIRS = [
    *((name, "linear") for name in EVERY),
    *((name, "saved") for name in SAVED),
    *((name, "head") for name in HEADS),
    *((name, "experts") for name in EXPERTS),
]


def options(name: str, kind: str) -> dict[str, Any]:
    if kind == "saved":
        return {
            "target_modules": r".*\.(q_proj|query|qkv|query_key_value)",
            "modules_to_save": SAVED[name],
        }
    if kind == "experts":
        names = ["experts.gate_up_proj", "experts.down_proj"]
        return {"target_modules": [], "target_parameters": names}
    if kind == "head":
        return {"target_modules": HEADS[name]}
    return {"target_modules": OTHERWISE[name]} if name in OTHERWISE else LINEAR


def logits(model: Any, feed: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        found = model.eval()(**feed)
    return found.logits if getattr(found, "logits", None) is not None else found[0]


@pytest.mark.parametrize(("name", "kind"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_the_logits_are_those_of_peft_unmerged(
    name: str, kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """``--junitxml FILE`` records the largest difference of each pair."""
    architecture = EVERY[name]
    feed = dict(architecture.feed)
    base = architecture.build(seed=0)
    base.save_pretrained(tmp_path / "base")
    before = logits(base, feed)
    torch.manual_seed(1)
    adapted = get_peft_model(base, LoraConfig(r=2, init_lora_weights=False, **options(name, kind)))
    for key, parameter in adapted.named_parameters():
        if "modules_to_save" in key:
            parameter.data += torch.randn_like(parameter) * 0.1
    adapted.save_pretrained(tmp_path / "adapter")
    theirs = logits(adapted, feed)
    out = merge(tmp_path, COPY, tmp_path / "out")
    assert tensors_of(out).keys() == tensors_of(tmp_path / "base").keys()
    ours = getattr(transformers, architecture.model).from_pretrained(out)
    found = logits(ours, feed)
    record_property("largest difference", (found - theirs).abs().max().item())
    assert not torch.allclose(before, theirs, atol=1e-3), "the adapter changes something"
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-4)
    weights, expected = ours.state_dict(), adapted.merge_and_unload().state_dict()
    for key in weights.keys() & expected.keys():  # also what these words do not pass through
        torch.testing.assert_close(weights[key], expected[key], rtol=1e-5, atol=1e-5)
