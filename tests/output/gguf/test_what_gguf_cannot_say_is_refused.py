"""Promise: what llama.cpp has no place for, or computes otherwise, is refused with its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFReader
from gguf_outputs import write_checkpoint
from merging import merge, tensors_of, working_in
from safetensors.torch import save_file

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.errors import InputError
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.planning.estimates.estimate import Prediction

RECIPE = "merge_method: passthrough\nmodels: [{model: model}]\n"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"model_type": "gpt_neox"}, "model_type"),
    ("llama", {"model_type": ["llama"]}, "model_type"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act"),
    ("llama", {"rms_norm_eps": None}, "rms_norm_eps"),
    ("llama", {"max_position_embeddings": None}, "max_position_embeddings"),
    ("llama", {"num_attention_heads": 8, "head_dim": 64}, "num_attention_heads"),
    ("llama", {"num_attention_heads": 1000, "head_dim": None}, "num_attention_heads"),
    ("llama", {"rope_parameters": None, "rope_scaling": [1]}, "rope_scaling"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling"),
    (
        "llama",
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 16}},
        "rope_scaling.beta_fast",
    ),
    ("gemma2", {"layer_types": ["full_attention"] * 2}, "layer_types"),
    ("gemma2", {"query_pre_attn_scalar": 77}, "query_pre_attn_scalar"),
    ("gemma2", {"attn_logit_softcapping": None}, "attn_logit_softcapping"),
    ("qwen3moe", {"norm_topk_prob": False}, "norm_topk_prob"),
    ("qwen2moe", {"norm_topk_prob": True}, "norm_topk_prob"),
]


@pytest.mark.parametrize(("name", "change", "where"), REFUSED)
def test_of_config_json(name: str, change: dict[str, Any], where: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", name)
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError) as error:
        merge(tmp_path, RECIPE, tmp_path / "model.gguf")
    [problem] = error.value.problems
    assert problem.path == where
    assert not list(tmp_path.glob("model.gguf?*.part*")) and not (tmp_path / "model.gguf").exists()


def change_tensors(folder: Path, added: dict[str, torch.Tensor], *removed: str) -> None:
    tensors = tensors_of(folder) | added
    for name in removed:
        del tensors[name]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("added", "removed", "named"),
    [
        ({"model.layers.0.self_attn.strange.weight": (4, 4)}, (), "strange"),
        ({}, ("model.layers.1.mlp.up_proj.weight",), "blk.1.ffn_up.weight"),
        ({}, ("lm_head.weight",), "output.weight"),
        ({"score.weight": (2, 256)}, (), "score.weight"),
        ({}, ("model.embed_tokens.weight",), "model.embed_tokens.weight"),
        ({"model.layers.0.mlp.up_proj.bias": ()}, (), "ffn_up.bias"),
    ],
)
def test_of_tensors(
    added: dict[str, tuple[int, ...]], removed: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "model")
    change_tensors(tmp_path / "model", {n: torch.ones(s) for n, s in added.items()}, *removed)
    with pytest.raises(InputError) as error:
        merge(tmp_path, RECIPE, tmp_path / "model.gguf")
    assert named in str(error.value)


@pytest.mark.parametrize("out", ["folder", "model.safetensors"])
def test_types_of_gguf_for_another_output(out: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    with pytest.raises(InputError, match="q8_0 is a type of GGUF files") as error:
        merge(tmp_path, RECIPE + "out_dtype: q8_0\n", tmp_path / out)
    assert error.value.problems[0].path == "out_dtype"


@pytest.mark.parametrize("asked", ["q4_k_m", "q6_k", "q5_0"])
def test_types_that_are_not_written(asked: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    with pytest.raises(InputError, match="Unknown dtype") as error:
        merge(tmp_path, RECIPE + f"out_dtype: {asked}\n", tmp_path / "model.gguf")
    assert "q8_0" in str(error.value)


@pytest.mark.parametrize("asked", ["float64", "fp8_block", "int4", "same"])
def test_types_of_safetensors_alone(asked: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    with pytest.raises(InputError, match="This type is not written to GGUF files") as error:
        merge(tmp_path, RECIPE + f"out_dtype: {asked}\n", tmp_path / "model.gguf")
    assert error.value.problems[0].path == "out_dtype"


def test_types_of_gguf_for_a_stage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    recipe = f"name: first\n{RECIPE}out_dtype: q8_0\n---\n" + RECIPE.replace(": model}", ": first}")
    with pytest.raises(InputError, match="q8_0 is a type of GGUF files"):
        merge(tmp_path, recipe, tmp_path / "model.gguf")


def test_stages_are_merged_into_it_but_not_kept_beside_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    recipe = f"name: first\n{RECIPE}---\n" + RECIPE.replace("model: model}", "model: first}")
    with pytest.raises(InputError, match="Stages cannot be kept beside an output that is one file"):
        merge(tmp_path, recipe, tmp_path / "model.gguf", keep=["first"])
    staged = merge(tmp_path, recipe, tmp_path / "model.gguf")
    (tmp_path / "direct").mkdir()
    direct = merge(tmp_path, RECIPE, tmp_path / "direct" / "model.gguf")
    assert staged.read_bytes() == direct.read_bytes()


def test_weights_alone(tmp_path: Path) -> None:
    save_file({"a.weight": torch.ones(4, 4)}, tmp_path / "alone.safetensors")
    recipe = RECIPE.replace("model: model}", "model: alone.safetensors}")
    with pytest.raises(InputError, match="A GGUF file needs the model"):
        merge(tmp_path, recipe, tmp_path / "model.gguf")


def test_without_a_tokenizer(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    for path in (tmp_path / "model").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InputError, match=r"tokenizer_source: MODEL.*output folder"):
        merge(tmp_path, RECIPE, tmp_path / "model.gguf")


class Planned(Reporter):
    """A reporter that keeps the notes of the plan."""

    notes: tuple[str, ...] = ()

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        self.notes = plan.notes


def test_what_is_ignored_is_told(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", "mistral", sliding_window=64)
    config, out = tmp_path / "r.yaml", tmp_path / "model.gguf"
    config.write_text(RECIPE + "out_dtype: q8_0\n")
    told = Planned()
    with working_in(tmp_path):
        options = Options(state_dir=tmp_path / "state", shard_size=1000)
        Session(options, told).run(config, out)
    notes = "\n".join(told.notes)
    assert "--shard-size is ignored: a model in GGUF is one file" in notes
    assert "a window of 64 tokens, which llama.cpp leaves out" in notes
    assert len(GGUFReader(out).tensors) == 21
