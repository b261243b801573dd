"""A model with an adapter has the weights that peft's merge_and_unload gives, for every feature."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import CLASSES, merged_by_peft, write_adapter, write_base
from merging import merge, shards_of, tensors_of
from torch import Tensor

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
ATTENTION = ["q_proj", "v_proj", "down_proj"]
CONV1D = ["c_attn", "c_proj", "c_fc"]

FEATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {"target_modules": ATTENTION}),
    "all-linear": ("llama", {"target_modules": "all-linear"}),
    "rank_one": ("llama", {"target_modules": ATTENTION, "r": 1}),
    "rank_beyond_the_width": ("llama", {"target_modules": ATTENTION, "r": 33}),
    "rslora": ("llama", {"target_modules": ATTENTION, "use_rslora": True}),
    "dora": ("llama", {"target_modules": ATTENTION, "use_dora": True}),
    "rslora_and_dora": (
        "llama",
        {"target_modules": ATTENTION, "use_dora": True, "use_rslora": True},
    ),
    "alpha_pattern": (
        "llama",
        {"target_modules": ATTENTION, "alpha_pattern": {"q_proj": 3, r"layers\.1\.mlp.*": 5}},
    ),
    "rank_pattern": (
        "llama",
        {
            "target_modules": ATTENTION,
            "rank_pattern": {"q_proj": 2, "model.layers.2.mlp.down_proj": 7},
            "alpha_pattern": {"q_proj": 3},
            "use_rslora": True,
        },
    ),
    "one_layer": ("llama", {"target_modules": ATTENTION, "layers_to_transform": [1]}),
    "modules_to_save": (
        "llama",
        {"target_modules": ATTENTION, "modules_to_save": ["lm_head", "input_layernorm"]},
    ),
    "embedding": ("llama", {"target_modules": ["embed_tokens", "q_proj"]}),
    "embedding_dora": ("llama", {"target_modules": ["embed_tokens"], "use_dora": True}),
    "head": ("llama", {"target_modules": ["lm_head"]}),
    "conv1d": ("gpt2", {"target_modules": CONV1D, "fan_in_fan_out": True}),
    "conv1d_unsaid": ("gpt2", {"target_modules": CONV1D}),
    "conv1d_square_alone": ("gpt2", {"target_modules": ["attn.c_proj"], "fan_in_fan_out": True}),
    "conv1d_dora": ("gpt2", {"target_modules": CONV1D, "use_dora": True}),
    "gpt2_embedding": ("gpt2", {"target_modules": ["wpe", "c_attn"]}),
    "bias_lora_only": ("gpt2", {"target_modules": CONV1D, "bias": "lora_only"}),
    "bias_all": ("gpt2", {"target_modules": CONV1D, "bias": "all"}),
    "single_tokens": (
        "llama",
        {"target_modules": ATTENTION, "trainable_token_indices": [1, 40, 7]},
    ),
    "pickled": ("llama", {"target_modules": ATTENTION, "safe_serialization": False}),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_float32(feature: str, tmp_path: Path) -> None:
    kind, options = FEATURES[feature]
    base = write_base(tmp_path / "base", kind)
    adapter = write_adapter(tmp_path / "adapter", base, kind, **options)
    ours = tensors_of(merge(tmp_path, COPY, tmp_path / "out"))
    theirs = merged_by_peft(base, adapter, kind)
    before = tensors_of(base)
    changed = [name for name in ours if not torch.equal(ours[name], before[name])]
    assert changed
    compare(ours, theirs, 1e-6)


@pytest.mark.parametrize("said", [False, True])
def test_a_square_weight_is_taken_as_its_module_stores_it(said: bool, tmp_path: Path) -> None:
    """The config has one setting for all modules, but peft looks at each module."""
    base = write_base(tmp_path / "base", "gpt2")
    adapter = write_adapter(tmp_path / "adapter", base, "gpt2", target_modules=["attn.c_proj"])
    theirs = merged_by_peft(base, adapter, "gpt2")
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["fan_in_fan_out"] = said
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    compare(tensors_of(merge(tmp_path, COPY, tmp_path / "out")), theirs, 1e-6)


@pytest.mark.parametrize("options", [{}, {"use_dora": True}], ids=["plain", "dora"])
def test_an_embedding_with_as_many_tokens_as_columns(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """The matrices of an embedding with equal sides would fit either way round."""
    base = write_base(tmp_path / "base", "llama", vocab_size=16)
    write_adapter(tmp_path / "adapter", base, "llama", target_modules=["embed_tokens"], **options)
    ours = tensors_of(merge(tmp_path, COPY, tmp_path / "out"))
    compare(ours, merged_by_peft(base, tmp_path / "adapter", "llama"), 1e-6)


@pytest.mark.parametrize("feature", FEATURES)
def test_bfloat16_is_the_exact_result_rounded_once(feature: str, tmp_path: Path) -> None:
    kind, options = FEATURES[feature]
    base = write_base(tmp_path / "base", kind, "bfloat16")
    adapter = write_adapter(tmp_path / "adapter", base, kind, **options)
    ours = tensors_of(merge(tmp_path, COPY, tmp_path / "out"))
    exact = merged_by_peft(base, adapter, kind, "float32")
    for name, tensor in ours.items():
        assert tensor.dtype == torch.bfloat16
        error = (tensor.float() - exact[name]).abs()
        # half of the last of 8 bits, and what float32 itself is unsure of
        assert (error <= exact[name].abs() * (2.0**-8 + 1e-5) + 1e-7).all(), name


IN_FLOAT32 = ["plain", "dora", "embedding_dora", "modules_to_save", "conv1d_dora", "single_tokens"]


@pytest.mark.parametrize("feature", IN_FLOAT32)
def test_in_float32_nothing_is_rounded_to_the_type_of_the_base(
    feature: str, tmp_path: Path
) -> None:
    kind, options = FEATURES[feature]
    base = write_base(tmp_path / "base", kind, "bfloat16")
    adapter = write_adapter(tmp_path / "adapter", base, kind, "float32", **options)
    exact = merged_by_peft(base, adapter, kind, "float32")
    ours = tensors_of(merge(tmp_path, COPY + "dtype: float32\n", tmp_path / "out"))
    compare(ours, exact, 1e-6)


@pytest.mark.parametrize("feature", IN_FLOAT32)
def test_a_merge_of_adapted_models_is_rounded_once(feature: str, tmp_path: Path) -> None:
    """A merge with a large factor shows every bit that was lost before it."""
    kind, options = FEATURES[feature]
    base = write_base(tmp_path / "base", kind, "bfloat16")
    write_adapter(tmp_path / "adapter", base, kind, "float32", **options)
    recipe = "merge_method: task_arithmetic\nbase_model: base\nparameters: {lambda: 4096}\n"
    recipe += "models: [{model: base+adapter, parameters: {weight: 1}}]\nout_dtype: float32\n"
    before = tensors_of(base)
    adapted = tensors_of(merge(tmp_path, COPY + "dtype: float32\n", tmp_path / "adapted"))
    for name, tensor in tensors_of(merge(tmp_path, recipe, tmp_path / "far")).items():
        expected = before[name].float() + 4096 * (adapted[name] - before[name].float())
        torch.testing.assert_close(tensor, expected, rtol=1e-6, atol=1e-5)


def compare(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
    assert ours.keys() <= theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype
        torch.testing.assert_close(tensor, theirs[name], rtol=tolerance, atol=tolerance)


def test_a_model_in_many_files_keeps_those_that_are_not_touched(tmp_path: Path) -> None:
    """transformers loads the output, which equals peft's; the files that stay are the base's."""
    base = write_base(tmp_path / "base", "llama")
    model = CLASSES["llama"].from_pretrained(base)
    (base / "model.safetensors").unlink()
    model.save_pretrained(base, max_shard_size="4KB")
    adapter = write_adapter(
        tmp_path / "adapter", base, "llama", target_modules=ATTENTION, layers_to_transform=[1]
    )
    out = merge(tmp_path, COPY, tmp_path / "out")
    loaded = CLASSES["llama"].from_pretrained(out).state_dict()
    compare(loaded, merged_by_peft(base, adapter, "llama"), 1e-6)
    before, after = shards_of(base), shards_of(out)
    same = [name for name in before if after[name] == before[name]]
    assert after.keys() == before.keys()
    assert len(before) > len(same) > len(before) // 2
