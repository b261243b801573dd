"""Mixtures have mergekit-moe's tensors and config, and transformers opens them in both layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_mergekit import MERGEKIT, run_beside_mergekit
from dense_models import CONFIGS, PROMPTED, SHARED, mixture, write_dense
from logits import assert_same
from merging import merge, tensors_of
from transformers import AutoConfig, AutoModelForCausalLM

MADE = [
    ("llama", "mixtral", ""),
    ("mistral", "mixtral", ""),
    ("llama", "deepseek", SHARED),
    ("mistral", "deepseek", ""),
    ("llama", "qwen", PROMPTED),
    ("mistral", "qwen", PROMPTED),
    ("qwen2", "qwen", PROMPTED),
    ("qwen3", "qwen3", ""),
]
"""Family of the dense models, architecture, shared experts."""

needs_mergekit = pytest.mark.skipif(MERGEKIT is None, reason="needs mergekit")

PACKED_BY_MERGEKIT = ("mixtral", "qwen3")

OF_TRANSFORMERS = (
    "output_hidden_states",
    "return_dict",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "id2label",
    "label2id",
    "problem_type",
    "_name_or_path",
    "output_attentions",
)
"""What transformers adds to any config that it writes as a dictionary; mergekit-moe writes it for
DeepSeek MoE."""


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    for name, config in CONFIGS.items():
        write_dense(folder / name, config)
    return folder


BUILD = """
import sys, yaml
from mergekit.moe.config import MoEMergeConfig
from mergekit.options import MergeOptions
from mergekit.scripts.moe import build
recipe, out = sys.argv[1:]
build(MoEMergeConfig.model_validate(yaml.safe_load(recipe)), out, MergeOptions())
"""


def by_mergekit(models: Path, recipe: str, out: Path) -> Path:
    run_beside_mergekit(models, BUILD, recipe, str(out), imports=["mergekit.scripts.moe"])
    return out


def is_gate(name: str) -> bool:
    return name.endswith(("mlp.gate.weight", "moe.gate.weight", "shared_expert_gate.weight"))


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


@needs_mergekit
@pytest.mark.parametrize("gate_mode", ["random", "cheap_embed"])
@pytest.mark.parametrize("family, architecture, shared", MADE)
def test_tensors_and_config_are_mergekits(
    families: Path, tmp_path: Path, family: str, architecture: str, shared: str, gate_mode: str
) -> None:
    models, recipe = families / family, mixture(gate_mode, architecture, shared)
    layout = "packed" if architecture in PACKED_BY_MERGEKIT else "separate"
    ours = merge(models, f"expert_layout: {layout}\n{recipe}", tmp_path / "ours")
    theirs = by_mergekit(models, recipe, tmp_path / "theirs")
    found, expected = tensors_of(ours), tensors_of(theirs)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype), name
        if not is_gate(name):
            assert found[name].equal(tensor), name
        elif gate_mode == "cheap_embed":
            # Both were rounded to bfloat16, of which a step is at most 2**-8 of the number.
            assert torch.allclose(found[name].float(), tensor.float(), rtol=2**-7, atol=1e-6)
    config, like = config_of(ours), config_of(theirs)
    dtype = {like.pop(key, None) for key in ("dtype", "torch_dtype")} - {None}
    assert dtype == {config.pop("dtype")}
    if architecture == "qwen3":
        like["num_experts"] = like.pop("num_local_experts")
    left_out = OF_TRANSFORMERS if architecture == "deepseek" else ()
    assert config == {key: value for key, value in like.items() if key not in left_out}


@needs_mergekit
@pytest.mark.parametrize(
    "family, architecture, shared", [made for made in MADE if made[:2] != ("llama", "deepseek")]
)
def test_cheap_embed_in_float32(
    families: Path, tmp_path: Path, family: str, architecture: str, shared: str
) -> None:
    models, recipe = families / family, mixture("cheap_embed", architecture, shared)
    recipe += "dtype: float32\n"
    found = tensors_of(merge(models, recipe, tmp_path / "ours"))
    expected = tensors_of(by_mergekit(models, recipe, tmp_path / "theirs"))
    gates = {n.replace("block_sparse_moe", "mlp"): t for n, t in found.items() if is_gate(n)}
    assert len(gates) == sum(map(is_gate, expected)) > 0
    for name, gate in gates.items():
        assert float((gate - expected[name]).abs().max()) < 1e-6, name


@pytest.mark.parametrize("layout", ["separate", "packed"])
@pytest.mark.parametrize(
    "family, architecture, shared", [made for made in MADE if made[1] != "deepseek"]
)
def test_transformers_opens_both_layouts_strictly(
    families: Path, tmp_path: Path, family: str, architecture: str, shared: str, layout: str
) -> None:
    recipe = f"expert_layout: {layout}\n" + mixture("random", architecture, shared)
    out = merge(families / family, recipe, tmp_path / "out", shard_size=30_000)
    assert len(list(out.glob("*.safetensors"))) > 1
    model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info
    text = torch.tensor([[1, 5, 6]])
    assert model.generate(text, max_new_tokens=4, do_sample=False).shape[1] > 3
    state = model.state_dict()
    for name, tensor in tensors_of(out).items():
        if layout == "packed":
            assert state[name].equal(tensor), name


def test_both_layouts_are_one_model(families: Path, tmp_path: Path) -> None:
    recipe = mixture("uniform_random", "mixtral").replace("residual_scale", "noise_scale")
    logits = []
    for layout in ("separate", "packed"):
        out = merge(families / "llama", f"expert_layout: {layout}\n{recipe}", tmp_path / layout)
        logits.append(AutoModelForCausalLM.from_pretrained(out)(torch.tensor([[1, 5, 6]])).logits)
    assert_same(*logits)


def test_a_sparse_config_means_what_it_meant(families: Path, tmp_path: Path) -> None:
    """The config states the defaults of llama, because those of Mixtral differ."""
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    config = config_of(models / "base")
    dropped = ("rms_norm_eps", "rope_parameters", "hidden_act", "initializer_range")
    sparse = {key: value for key, value in config.items() if key not in dropped}
    (models / "base" / "config.json").write_text(json.dumps(sparse))
    out = merge(models, mixture("random", "mixtral"), tmp_path / "out")
    dense, made = AutoConfig.from_pretrained(models / "base"), AutoConfig.from_pretrained(out)
    for key in (*dropped, "num_key_value_heads", "max_position_embeddings"):
        assert getattr(made, key) == getattr(dense, key), key
