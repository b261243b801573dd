"""Filters match a tensor's name on disk, and the one that transformers has for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of
from safetensors.torch import load_file, save_file
from zoo import ARCHITECTURES

from resumerge.layout import CanonicalNames

Family = Callable[[str], Path]
NEVER_BARE = ("qwen2_vl", "qwen2_5_vl")
"""Their prefix tells the language model from the eyes."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_tensors_are_known_by_it(name: str, family: Family) -> None:
    model = ARCHITECTURES[name].build(seed=0)
    theirs = model.state_dict().keys()
    disk = load_file(family(name) / "base" / "model.safetensors").keys()
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    names = CanonicalNames(disk, config)
    assert {names.of(tensor) for tensor in disk} <= theirs
    prefix = f"{model.base_model_prefix}."
    bare = {tensor.removeprefix(prefix) for tensor in disk}
    if name not in NEVER_BARE and len(bare) == len(disk):
        names = CanonicalNames(bare, config)
        assert {names.of(tensor) for tensor in bare} <= theirs


BARE = ["embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight", "lm_head.weight"]


def named(name: str, names: list[str], **config: object) -> str:
    return CanonicalNames([*names, name], config).of(name)


def test_a_prefix_is_added_to_a_model_with_a_head_that_lacks_it() -> None:
    causal = ["LlamaForCausalLM"]
    assert named("norm.weight", BARE, architectures=causal) == "model.norm.weight"
    assert named("lm_head.weight", BARE, architectures=causal) == "lm_head.weight"
    assert named("norm.weight", BARE, architectures=["LlamaModel"]) == "norm.weight"
    assert named("norm.weight", BARE, architectures="LlamaForCausalLM") == "norm.weight"
    assert named("norm.weight", BARE) == "norm.weight"
    assert named("norm.weight", ["h.0.w"], architectures=causal) == "norm.weight"
    gpt2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    assert named("h.0.w", ["wte.weight"], **gpt2) == "transformer.h.0.w"
    assert named("transformer.h.0.w", ["transformer.wte.weight"], **gpt2) == "transformer.h.0.w"


def test_experts_without_a_gate_have_an_up_projection_alone() -> None:
    up, gate = (
        "model.layers.0.mlp.experts.3.up_proj.weight",
        "model.layers.0.mlp.experts.0.w1.weight",
    )
    assert named(up, []) == "model.layers.0.mlp.experts.up_proj"
    assert named(up, [gate]) == "model.layers.0.mlp.experts.gate_up_proj"
    down = up.replace("up_proj", "down_proj")
    assert named(down, []) == "model.layers.0.mlp.experts.down_proj"


def test_renames_of_one_architecture_touch_no_other() -> None:
    assert named("embed_out.weight", [], model_type="gpt_neox") == "lm_head.weight"
    assert named("embed_out.weight", [], model_type="other") == "embed_out.weight"
    eyes = ["visual.blocks.0.w"]
    assert named("model.norm.weight", eyes) == "model.language_model.norm.weight"
    whole = "model.language_model.norm.weight"
    assert named(whole, eyes) == whole
    layer = "encoder.layer.1.output.dense.weight"
    assert named(layer, [], model_type="vit").endswith("layers.1.mlp.fc2.weight")
    assert named(layer, [], model_type="bert") == layer


def scaled(models: Path, filter_: str, tmp_path: Path) -> set[str]:
    """Return the tensors of `math` that a filter matches."""
    recipe = (
        "merge_method: passthrough\nmodels: [{model: math, parameters: "
        f"{{scale: [{{filter: {filter_}, value: 2}}, {{value: 1}}]}}}}]\n"
    )
    out = tensors_of(merge(models, recipe, tmp_path / filter_))
    return {
        name for name, tensor in tensors_of(models / "math").items() if not tensor.equal(out[name])
    }


def test_gpt2_without_its_prefix(family: Family, tmp_path: Path) -> None:
    model = family("gpt2") / "math"
    tensors = load_file(model / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    (tmp_path / "math").mkdir()
    (tmp_path / "math" / "config.json").write_text((model / "config.json").read_text())
    save_file(bare, tmp_path / "math" / "model.safetensors", metadata={"format": "pt"})
    expected = {name for name in bare if name.startswith("h.1.")}
    assert scaled(tmp_path, "transformer.h.1.", tmp_path) == expected
    assert scaled(tmp_path, "h.1.", tmp_path) == expected


def test_berts_old_layer_norms(family: Family, tmp_path: Path) -> None:
    model = family("bert") / "math"
    tensors = load_file(model / "model.safetensors")
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): t for name, t in tensors.items()}
    (tmp_path / "math").mkdir()
    (tmp_path / "math" / "config.json").write_text((model / "config.json").read_text())
    save_file(old, tmp_path / "math" / "model.safetensors", metadata={"format": "pt"})
    expected = {name for name in old if "LayerNorm.gamma" in name}
    assert scaled(tmp_path, "LayerNorm.weight", tmp_path) == expected
    assert scaled(tmp_path, "gamma", tmp_path) == expected


def test_mixtrals_experts(family: Family, tmp_path: Path) -> None:
    names = tensors_of(family("mixtral") / "math").keys()
    experts = {name for name in names if ".experts." in name}
    router = {name for name in names if ".block_sparse_moe.gate." in name}
    assert scaled(family("mixtral"), "mlp", tmp_path) == experts | router
    assert scaled(family("mixtral"), "block_sparse_moe", tmp_path) == experts | router
    assert scaled(family("mixtral"), "gate_up_proj", tmp_path) == {
        name for name in experts if ".w2." not in name
    }
    assert scaled(family("mixtral"), ".w1.", tmp_path) == {n for n in experts if ".w1." in n}


def test_layers_that_are_stacked_are_known_too(family: Family, tmp_path: Path) -> None:
    """The filters of a parameter of the whole merge match names of the output."""
    recipe = """
merge_method: task_arithmetic
slices:
  - sources: [{model: base, layer_range: [0, 4]}, {model: math, layer_range: [0, 4]}]
  - sources: [{model: base, layer_range: [3, 4]}, {model: math, layer_range: [3, 4]}]
base_model: base
parameters:
  weight: 1
  lambda: [{filter: layers.4.mlp, value: 0}, {value: 1}]
"""
    out = tensors_of(merge(family("mixtral"), recipe, tmp_path / "out"))
    base, math = (tensors_of(family("mixtral") / name) for name in ("base", "math"))
    for name, tensor in out.items():
        if name.startswith("model.layers.4."):
            old = name.replace("layers.4", "layers.3")
            expected = base[old] if "block_sparse_moe" in name else math[old]
            torch.testing.assert_close(tensor, expected)
