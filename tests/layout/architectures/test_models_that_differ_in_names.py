"""Models whose names differ by a wrapper, a tie or a buffer are matched; others are told apart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from loading import loaded, output
from merging import merge, tensors_of
from safetensors.torch import load_file, save_file

from resumerge.errors import InputError

Family = Callable[[str], Path]
HALVES = """
merge_method: linear
models:
  - {{model: {0}, parameters: {{weight: 0.5}}}}
  - {{model: {1}, parameters: {{weight: 0.5}}}}
"""


def renamed(folder: Path, to: Path, before: str, after: str) -> Path:
    """Write a copy of a model whose tensors' names have another prefix."""
    shutil.copytree(folder, to)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {
            (after + name.removeprefix(before) if name.startswith(before) else name): tensor
            for name, tensor in tensors.items()
        },
        to / "model.safetensors",
        metadata={"format": "pt"},
    )
    return to


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("bert", "bert.", ""),
        ("gpt2", "transformer.", ""),
        ("llama", "model.", "language_model.model."),
        ("gemma3", "language_model.model.", "model.language_model."),
        ("llava", "language_model.model.", "model."),
    ],
)
def test_a_wrapper_prefix(
    name: str, before: str, after: str, family: Family, tmp_path: Path
) -> None:
    models = family(name)
    wrapped = renamed(models / "math", tmp_path / "wrapped", before, after)
    whole = merge(models, HALVES.format("code", "math"), tmp_path / "whole")
    out = merge(models, HALVES.format("code", wrapped), tmp_path / "out")
    expected, found = tensors_of(whole), tensors_of(out)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    output(name, loaded(name, out))


def test_stacking_models_under_different_prefixes(family: Family, tmp_path: Path) -> None:
    models = family("llama")
    wrapped = renamed(models / "math", tmp_path / "wrapped", "model.", "base_model.model.")
    slices = """
merge_method: passthrough
slices:
  - sources: [{{model: code, layer_range: [0, 3]}}]
  - sources: [{{model: {0}, layer_range: [1, 4]}}]
"""
    whole = tensors_of(merge(models, slices.format("math"), tmp_path / "whole"))
    out = tensors_of(merge(models, slices.format(wrapped), tmp_path / "out"))
    assert out.keys() == whole.keys()
    assert all(torch.equal(out[key], whole[key]) for key in whole)


def test_a_language_model_goes_into_the_text_part_of_a_vision_model(
    family: Family, tmp_path: Path
) -> None:
    models = family("llava")
    whole = loaded("llava", models / "math")
    text = transformers.LlamaForCausalLM(whole.config.text_config)
    text.model.load_state_dict(whole.model.language_model.state_dict())
    text.lm_head.load_state_dict(whole.lm_head.state_dict())
    text.save_pretrained(tmp_path / "text")
    recipe = f"""
merge_method: linear
modules:
  text_decoder:
    models:
      - {{model: code, parameters: {{weight: 1}}}}
      - {{model: {tmp_path / "text"}, parameters: {{weight: 1}}}}
"""
    out = merge(models, recipe, tmp_path / "out")
    found, code, math = (tensors_of(f) for f in (out, models / "code", models / "math"))
    for name, tensor in found.items():
        if name.startswith("language_model."):
            torch.testing.assert_close(tensor, (code[name] + math[name]) / 2)
        else:
            assert torch.equal(tensor, code[name]), name
    output("llava", loaded("llava", out))


def test_a_buffer_that_only_one_version_saves(family: Family, tmp_path: Path) -> None:
    models = family("llama")
    shutil.copytree(models / "code", tmp_path / "older")
    tensors = load_file(tmp_path / "older" / "model.safetensors")
    for layer in range(4):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "older" / "model.safetensors", metadata={"format": "pt"})
    for first, second in ((tmp_path / "older", "math"), ("math", tmp_path / "older")):
        out = merge(models, HALVES.format(first, second), tmp_path / f"out{second == 'math'}")
        output("llama", loaded("llama", out))


def test_a_shared_embedding_that_is_saved_under_each_of_its_names(
    family: Family, tmp_path: Path
) -> None:
    models = family("bart")
    shutil.copytree(models / "code", tmp_path / "older")
    tensors = load_file(tmp_path / "older" / "model.safetensors")
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"):
        tensors[name] = tensors["model.shared.weight"].clone()
    tensors["lm_head.weight"] = tensors["model.shared.weight"].clone()
    save_file(tensors, tmp_path / "older" / "model.safetensors", metadata={"format": "pt"})
    for first, second in ((tmp_path / "older", "math"), ("math", tmp_path / "older")):
        out = merge(models, HALVES.format(first, second), tmp_path / f"out{second == 'math'}")
        output("bart", loaded("bart", out))


def problems(models: Path, recipe: str, tmp_path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        merge(models, recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    return [str(problem) for problem in caught.value.problems]


def test_a_real_mismatch_shows_both_sides(family: Family, tmp_path: Path) -> None:
    models = family("llama")
    [told] = problems(models, HALVES.format("code", family("phi3") / "base"), tmp_path)[:1]
    assert "20 tensors are missing" in told
    assert "model.layers.{0-3}.self_attn.q_proj.weight" in told
    assert "that code lacks: model.layers.{0-3}.mlp.gate_up_proj.weight" in told
    assert "Merge models of the same architecture: " in told
    assert "has model_type phi3, code has llama" in told


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("qwen2", "llama", "6 tensors are missing from {1}"),
        ("qwen3", "llama", "4 tensors are missing from {1}"),
        ("llama", "qwen2", "6 tensors of {1} would be lost"),
    ],
)
def test_layers_of_another_architecture_are_not_stacked(
    first: str, second: str, told: str, family: Family, tmp_path: Path
) -> None:
    models = [family(name) / "math" for name in (first, second)]
    recipe = (
        "merge_method: passthrough\nslices:\n"
        f"  - sources: [{{model: {models[0]}, layer_range: [0, 2]}}]\n"
        f"  - sources: [{{model: {models[1]}, layer_range: [2, 4]}}]\n"
    )
    said = "\n".join(problems(tmp_path, recipe, tmp_path))
    assert told.format(*models) in said
    assert "line 4, at slices[1].sources[0]" in said
    assert "Merge models of the same architecture" in said


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("llama", "qwen2", "12 tensors of {1} would be lost"),
        ("qwen2", "llama", "12 tensors are missing from {1}"),
    ],
)
def test_what_one_model_has_more_in_its_layers_is_not_dropped(
    first: str, second: str, told: str, family: Family, tmp_path: Path
) -> None:
    models = [family(name) / "math" for name in (first, second)]
    said = "\n".join(problems(tmp_path, HALVES.format(*models), tmp_path))
    assert told.format(*models) in said
    assert "Merge models of the same architecture" in said


def test_a_buffer_in_the_layers_of_one_is_no_other_kind_of_layer(
    family: Family, tmp_path: Path
) -> None:
    models = family("llama")
    shutil.copytree(models / "code", tmp_path / "older")
    tensors = load_file(tmp_path / "older" / "model.safetensors")
    for layer in range(3):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "older" / "model.safetensors", metadata={"format": "pt"})
    for first, second in ((tmp_path / "older", "math"), ("math", tmp_path / "older")):
        recipe = (
            "merge_method: passthrough\nslices:\n"
            f"  - sources: [{{model: {first}, layer_range: [0, 4]}}]\n"
            f"  - sources: [{{model: {second}, layer_range: [1, 4]}}]\n"
        )
        out = merge(models, recipe, tmp_path / f"out{second == 'math'}")
        output("llama", loaded("llama", out))


def test_experts_in_an_unknown_form_are_told(family: Family, tmp_path: Path) -> None:
    models = family("mixtral")
    shutil.copytree(models / "math", tmp_path / "fused")
    tensors = load_file(models / "math" / "model.safetensors")
    single = sorted(name for name in tensors if "experts." in name)
    for name in single:
        tensors[name.replace(".0.", ".", 1) if ".experts.0." in name else "x." + name] = (
            tensors.pop(name)
        )
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("x.")}
    fused = {
        (n if "experts" not in n else n.replace("experts.0.", "experts.")): t
        for n, t in tensors.items()
    }
    save_file(fused, tmp_path / "fused" / "model.safetensors", metadata={"format": "pt"})
    told = "\n".join(problems(models, HALVES.format("code", tmp_path / "fused"), tmp_path))
    assert "forms that are not made from each other" in told


def test_a_part_that_no_module_names_is_kept(family: Family, tmp_path: Path) -> None:
    recipe = """
merge_method: linear
modules:
  decoder:
    slices:
      - sources: [{model: math, layer_range: [0, 3], parameters: {weight: 1}}]
      - sources: [{model: code, layer_range: [2, 4], parameters: {weight: 1}}]
dtype: float32
"""
    models = family("whisper")
    out = merge(models, recipe, tmp_path / "out")
    found, math = tensors_of(out), tensors_of(models / "math")
    kept = [name for name in math if not name.startswith("model.decoder.")]
    assert all(torch.equal(found[name], math[name]) for name in kept)
    config = json.loads((out / "config.json").read_text())
    assert (config["decoder_layers"], config["encoder_layers"]) == (5, 3)
    output("whisper", loaded("whisper", out))


def test_each_tower_is_stacked_by_itself(family: Family, tmp_path: Path) -> None:
    recipe = """
merge_method: passthrough
modules:
  text_decoder:
    slices:
      - sources: [{model: math, layer_range: [0, 3]}]
      - sources: [{model: code, layer_range: [2, 4]}]
  vision_tower:
    slices:
      - sources: [{model: code, layer_range: [0, 2]}]
      - sources: [{model: math, layer_range: [0, 3]}]
  multi_modal_projector:
    models: [{model: code}]
"""
    for name in ("qwen2_5_vl", "gemma3", "llava"):
        out = merge(family(name), recipe, tmp_path / name)
        config = json.loads((out / "config.json").read_text())
        assert config["text_config"]["num_hidden_layers"] == 5
        vision = config["vision_config"]
        assert vision.get("depth", vision.get("num_hidden_layers")) == 5
        if name == "qwen2_5_vl":
            assert vision["fullatt_block_indexes"] == [1, 3]
        output(name, loaded(name, out))


def test_slices_of_an_encoder_decoder_say_how_to_name_its_parts(
    family: Family, tmp_path: Path
) -> None:
    recipe = "merge_method: passthrough\nslices: [{sources: [{model: math, layer_range: [0, 2]}]}]"
    [told] = problems(family("t5"), recipe, tmp_path)
    assert "several: decoder.block (4 layers), encoder.block (3 layers)" in told
    assert "Write 'modules:'" in told


def test_a_module_that_is_not_there(family: Family, tmp_path: Path) -> None:
    recipe = "merge_method: passthrough\nmodules: {text_decodr: {models: [{model: math}]}}"
    [told] = problems(family("llava"), recipe, tmp_path)
    assert "line 2, at modules.text_decodr" in told
    assert "expected: text_decoder (" in told and "vision_tower (" in told
    assert "Did you mean 'text_decoder'?" in told


@pytest.mark.parametrize(
    ("name", "ranges", "fits"),
    [
        ("jamba", [(0, 4), (2, 4)], True),
        ("jamba", [(0, 4), (1, 3)], False),
        ("deepseek_v3", [(0, 2), (1, 4)], True),
        ("deepseek_v3", [(0, 2), (0, 4)], False),
        ("lfm2", [(0, 4), (1, 3)], True),  # layer_types says which is which
        ("recurrent_gemma", [(0, 4), (1, 3)], True),  # block_types, which repeat, are written out
    ],
)
def test_layers_of_different_kinds_stand_where_the_config_says(
    name: str, ranges: list[tuple[int, int]], fits: bool, family: Family, tmp_path: Path
) -> None:
    slices = [f"  - sources: [{{model: math, layer_range: [{a}, {b}]}}]" for a, b in ranges]
    recipe = "merge_method: passthrough\nslices:\n" + "\n".join(slices)
    if fits:
        output(name, loaded(name, merge(family(name), recipe, tmp_path / "out")))
        return
    [told] = problems(family(name), recipe, tmp_path)
    assert "config.json expects a different kind of layer at this position" in told
    assert f"line {2 + len(ranges)}, at slices[{len(ranges) - 1}].sources[0].layer_range" in told
