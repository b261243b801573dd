"""Promise: merging quantised models is merging what their libraries make of them, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from killed_at_a_shard import merge_until_killed
from merging import merge, shards_of, working_in
from quantised_models import SCHEMES
from safetensors.torch import load_file, save_file
from small_batches import use_small_batches
from streamed_models import serve_local_models
from tiny_models import LLAMA, llama_shapes, random_tensors

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.recipe import ModelRef
from resumerge.sources import open_source

CONFIG = {**LLAMA, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
CONFIG |= {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16}
# bitsandbytes' own kernels for the CPU are wrong where a row is no multiple of the block (0.50.2).
EXACT = ["fp8 block", "gptq act-order", "awq", "nf4 nested", "llm.int8"]
"""The schemes whose libraries compute in float32, so that a copy loses nothing."""

METHODS: dict[str, str] = {
    "linear": "{weight: 0.4}",
    "slerp": "",
    "task_arithmetic": "{weight: 0.7}",
    "ties": "{weight: 0.6, density: 0.5}",
    "dare_ties": "{weight: 0.6, density: 0.5}",
    "model_stock": "",
}
SUFFIX = ".weight"


def write_both(folder: Path, name: str, scheme: str, seed: int) -> None:
    """Write a model with quantised projections, and its copy in float32 as `NAME-plain`."""
    plain = random_tensors(llama_shapes(CONFIG), seed)
    stored: dict[str, torch.Tensor] = {}
    config: dict[str, Any] = {}
    for number, (key, tensor) in enumerate(list(plain.items())):
        if "_proj" not in key:
            stored[key] = tensor
            continue
        rows, columns = tensor.shape
        parts, expected, config = SCHEMES[scheme](rows, columns, seed * 100 + number)
        assert expected.dtype == torch.float32
        plain[key] = expected.contiguous()
        stem = key.removesuffix("weight")
        stored |= {stem + part: value.contiguous() for part, value in parts.items()}
    for which, tensors, stated in (
        (name, stored, {"quantization_config": config, "dtype": "float32"}),
        (f"{name}-plain", plain, {}),
    ):
        (folder / which).mkdir()
        save_file(tensors, folder / which / "model.safetensors", metadata={"format": "pt"})
        (folder / which / "config.json").write_text(json.dumps({**CONFIG, **stated}))


def recipe(method: str, *names: str) -> str:
    base, *models = names
    params = METHODS[method]
    lines = [f"merge_method: {method}", "out_dtype: bfloat16"]
    if method not in ("linear",):
        lines.append(f"base_model: {base}")
    if method == "slerp":
        lines.append("parameters: {t: 0.3}")
    lines.append("models:")
    for model in models[: 1 if method == "slerp" else None]:
        lines.append(f"- model: {model}")
        if params:
            lines.append(f"  parameters: {params}")
    if method == "slerp":
        lines.append(f"- model: {base}")
    return "\n".join(lines) + "\n"


def weights(folder: Path) -> dict[str, tuple[torch.dtype, bytes]]:
    """Return each tensor's dtype and bytes by name, whatever their order in the file."""
    return {
        name: (tensor.dtype, tensor.contiguous().view(torch.uint8).numpy().tobytes())
        for name, tensor in load_file(folder / "model.safetensors").items()
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised")
    for seed, scheme in enumerate(EXACT):
        write_both(folder, scheme.replace(" ", "-"), scheme, seed)
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_merged_like_their_copies(
    method: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_batches(monkeypatch, 30_000)
    names = [name.replace(" ", "-") for name in EXACT]
    plain = [f"{name}-plain" for name in names]
    ours = merge(models, recipe(method, *names), tmp_path / "ours")
    theirs = merge(models, recipe(method, *plain), tmp_path / "theirs")
    found, expected = weights(ours), weights(theirs)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    config = json.loads((ours / "config.json").read_text())
    assert "quantization_config" not in config
    card = (ours / "README.md").read_text()
    assert "), quantised: 14 in " in card
    assert "quantised" not in (theirs / "README.md").read_text()


def test_an_adapter_changes_what_the_numbers_stand_for(models: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    draw = torch.Generator().manual_seed(5)
    at = "base_model.model.model.layers.1.mlp.up_proj.lora_{}.weight".format
    save_file(
        {
            at("A"): torch.randn(4, 64, generator=draw),
            at("B"): torch.randn(128, 4, generator=draw),
        },
        adapter / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["up_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    made = {}
    for end in ("", "-plain"):
        text = (
            "name: first\nmerge_method: linear\nmodels:\n"
            f"- {{model: nf4-nested{end}+{adapter}, parameters: {{weight: 0.5}}}}\n"
            f"- {{model: fp8-block{end}, parameters: {{weight: 0.5}}}}\n"
            "---\nmerge_method: passthrough\nout_dtype: float16\n"
            f"slices:\n- sources: [{{model: first, layer_range: [0, 2]}}]\n"
            f"- sources: [{{model: awq{end}, layer_range: [1, 2]}}]\n"
        )
        made[end] = weights(merge(models, text, tmp_path / f"out{end}"))
    assert made[""] == made["-plain"]


def test_a_copy_is_rounded_to_the_dtype_of_the_config(models: Path, tmp_path: Path) -> None:
    """The weights of a copy are those that the library gives in that dtype."""
    text = "merge_method: passthrough\nmodels: [{model: awq}]\n"
    (models / "awq" / "config.json").write_text(json.dumps({**CONFIG, "dtype": "float16"}))
    found = load_file(merge(models, text, tmp_path / "out") / "model.safetensors")
    expected = load_file(models / "awq-plain" / "model.safetensors")
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor.half() if "_proj" in name else tensor), name


def test_the_plan_says_what_is_read_and_every_tensor_is_used(models: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        recipe("linear", *(str(models / n) for n in ("fp8-block", "llm.int8", "awq")))
    )
    plan = resumerge.plan(tmp_path / "r.yaml")
    [note] = [note for note in plan["notes"] if "14 in bitsandbytes of 8 bits" in note]
    assert "computed from quantised ones" in note
    [account] = [each for each in plan["accounts"]["sources"] if each["model"].endswith("llm.int8")]
    [unused] = account["reasons"]
    assert (unused["reason"], unused["tensors"]) == ("quantisation", 14)
    assert account["used"] == account["tensors"] - 14


@pytest.mark.parametrize("name", ["a plain twin", "a quantised twin", "no scales", "wrong shape"])
def test_what_does_not_fit_is_refused_by_the_tensors_name(name: str, tmp_path: Path) -> None:
    stored, _, config = SCHEMES["int4 group"](40, 96, 1)
    if name == "a plain twin":
        stored["weight"] = torch.ones(40, 96)
    elif name == "a quantised twin":
        stored |= SCHEMES["fp8 block"](40, 96, 1)[0]
    elif name == "no scales":
        del stored["weight_scale"]
    else:
        stored["weight_scale"] = torch.ones(7, 2)
    save_file({f"m.q.{k}": v for k, v in stored.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    with pytest.raises(resumerge.InputError, match=r"m\.q\.") as caught:
        open_source(ModelRef(str(tmp_path), str(tmp_path)))
    [problem] = caught.value.problems
    assert problem.found and problem.expected and problem.fix


@pytest.mark.parametrize("scheme", ["gptq", "gptq act-order"])
def test_scales_of_no_group_are_refused(scheme: str, tmp_path: Path) -> None:
    stored, _, config = SCHEMES[scheme](128, 128, 1)
    stored |= {name: stored[name][:0] for name in ("scales", "qzeros")}
    save_file({f"m.q.{k}": v for k, v in stored.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    with pytest.raises(resumerge.InputError, match=r"m\.q"):
        open_source(ModelRef(str(tmp_path), str(tmp_path)))


def test_streamed_by_ranges_it_is_the_same(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes are read by ranges with their scales."""
    use_small_batches(monkeypatch, 3000)
    text = recipe("ties", *(name.replace(" ", "-") for name in EXACT))
    local = merge(models, text, tmp_path / "local")
    sent = serve_local_models(monkeypatch)
    streamed = merge(models, text, tmp_path / "streamed", stream=True, offline=False)
    assert weights(streamed) == weights(local)
    for path, nbytes in sent.items():
        assert nbytes < 3.5 * Path(path).stat().st_size, path
    assert len(sent) == len(EXACT)


def test_killed_and_resumed_it_is_the_same(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_batches(monkeypatch, 20_000)
    text, size = recipe("ties", *(name.replace(" ", "-") for name in EXACT)), 50_000
    whole = merge(models, text, tmp_path / "whole", shard_size=size)
    config, out = tmp_path / "killed.yaml", tmp_path / "killed"
    config.write_text(text)
    options = Options(state_dir=tmp_path / "state", shard_size=size)
    with working_in(models):
        merge_until_killed(options, config, out)
        assert 0 < len(shards_of(out)) < len(shards_of(whole))
        Session(options).run(config, out)
    assert shards_of(out) == shards_of(whole)
