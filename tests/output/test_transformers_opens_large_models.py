"""Llamas of 134 M parameters in bfloat16, merged into several shards, open in transformers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of
from transformers import AutoModelForCausalLM

TASKS = """
base_model: base
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: [0.2, 0.8], density: 0.3}}
"""
RECIPES = {
    "linear": TASKS + "parameters: {weight: 0.1}",
    "slerp": "base_model: math\nmodels: [{model: code}]\nparameters: {t: [0.2, 0.8]}",
    "ties": TASKS,
    "dare_ties": TASKS,
    "passthrough": "slices:\n"
    "  - sources: [{model: base, layer_range: [0, 3]}]\n"
    "  - sources: [{model: math, layer_range: [1, 4]}]\n"
    "  - sources: [{model: code, layer_range: [4, 6]}]",
}


@pytest.fixture(scope="module", params=RECIPES)
def merged(
    request: pytest.FixtureRequest, large_llamas: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """Yield a method and the folder of its output, which is removed afterwards."""
    recipe = f"merge_method: {request.param}\n{RECIPES[request.param]}\n"
    out = tmp_path_factory.mktemp("merged") / request.param
    yield request.param, merge(large_llamas, recipe, out, shard_size=100_000_000)
    shutil.rmtree(out)


def test_loads_with_every_tensor_in_place(merged: tuple[str, Path]) -> None:
    method, out = merged
    model, info = AutoModelForCausalLM.from_pretrained(out, dtype="auto", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.bfloat16
    assert model.config.num_hidden_layers == len(model.model.layers)
    assert len(model.model.layers) == (8 if method == "passthrough" else 6)
    with torch.no_grad():
        assert model(torch.arange(5).unsqueeze(0)).logits.isfinite().all()


def test_shards_are_filled_up_to_their_size(merged: tuple[str, Path]) -> None:
    _, out = merged
    sizes = {path.name: path.stat().st_size for path in out.glob("*.safetensors")}
    count = len(sizes)
    assert count >= 3
    assert set(sizes) == {f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)}
    assert max(sizes.values()) < 100_100_000


def test_the_layers_are_those_that_the_slices_name(large_llamas: Path, tmp_path: Path) -> None:
    recipe = f"merge_method: passthrough\n{RECIPES['passthrough']}\n"
    found = tensors_of(merge(large_llamas, recipe, tmp_path / "out"))
    origins = [("base", 0), ("base", 1), ("base", 2), ("math", 1), ("math", 2), ("math", 3)]
    origins += [("code", 4), ("code", 5)]
    parents = {name: tensors_of(large_llamas / name) for name in ("base", "math", "code")}
    for layer, (name, source) in enumerate(origins):
        for rest in ("mlp.up_proj.weight", "self_attn.k_proj.weight", "input_layernorm.weight"):
            expected = parents[name][f"model.layers.{source}.{rest}"]
            assert torch.equal(found[f"model.layers.{layer}.{rest}"], expected)
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    assert torch.equal(found[embedding], parents["base"][embedding])
    assert torch.equal(found[head], parents["code"][head])
    shutil.rmtree(tmp_path / "out")


def test_a_tensor_of_many_blocks_is_what_torch_computes_at_once(
    large_llamas: Path, tmp_path: Path
) -> None:
    recipe = (
        "merge_method: linear\n"
        "models: [{model: math, parameters: {weight: 3}}, {model: code, parameters: {weight: 1}}]\n"
    )
    found = tensors_of(merge(large_llamas, recipe, tmp_path / "out"))
    math, code = (tensors_of(large_llamas / name) for name in ("math", "code"))
    for name in ("model.embed_tokens.weight", "model.layers.5.mlp.down_proj.weight"):
        assert found[name].numel() > 2 << 20
        assert torch.equal(
            found[name], (math[name].float() * 0.75 + code[name].float() * 0.25).bfloat16()
        )
    shutil.rmtree(tmp_path / "out")
