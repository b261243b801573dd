"""Pipelines of diffusers are merged component by component, and diffusers loads the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from merging import merge, working_in
from safetensors.torch import load_file, save_file
from torch import Tensor

import resumerge

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")

from original_checkpoints import write_original  # noqa: E402
from tiny_pipelines import write_flux, write_sdxl  # noqa: E402

RECIPE = """\
merge_method: linear
models:
  - model: one
    parameters:
      weight:
        - {filter: text_encoder/, value: 1}
        - {filter: vae/, value: 0}
        - {value: 0.25}
  - model: two
    parameters:
      weight:
        - {filter: text_encoder/, value: 0}
        - {filter: vae/, value: 1}
        - {value: 0.75}
"""
SHARE = {"text_encoder": 1.0, "vae": 0.0}
"""Of the first pipeline in each component; a quarter in all others."""

KINDS = {
    "sdxl": (write_sdxl, diffusers.StableDiffusionXLPipeline, "unet"),
    "flux": (write_flux, diffusers.FluxPipeline, "transformer"),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Write the pipelines `one` and `two`; return their folder, class and largest component."""
    write, pipeline, largest = KINDS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    write(folder / "one", seed=1)
    write(folder / "two", seed=2, max_shard_size="40KB")  # in several files, with indexes
    return folder, pipeline, largest


def states(pipeline: Any, load: Callable[[], Any]) -> dict[str, dict[str, Tensor]]:
    """Load a pipeline with diffusers, and return the tensors of each component."""
    loaded = load()
    assert isinstance(loaded, pipeline)
    return {
        name: part.state_dict()
        for name, part in loaded.components.items()
        if isinstance(part, torch.nn.Module)
    }


@pytest.mark.parametrize("shard_size", [None, 60_000])
def test_a_folder(kind: Any, shard_size: int | None, tmp_path: Path) -> None:
    folder, pipeline, largest = kind
    out = merge(folder, RECIPE, tmp_path / "out", shard_size=shard_size)
    sharded = out / largest / "diffusion_pytorch_model.safetensors.index.json"
    assert sharded.exists() == (shard_size is not None)
    one, two, merged = (
        states(pipeline, lambda path=path: pipeline.from_pretrained(path))
        for path in (folder / "one", folder / "two", out)
    )
    assert len(merged) == 4 and merged.keys() == one.keys()
    for name, tensors in merged.items():
        share = SHARE.get(name, 0.25)
        for key, tensor in tensors.items():
            expected = share * one[name][key] + (1 - share) * two[name][key]
            torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)
    assert "library_name: diffusers" in (out / "README.md").read_text()


def test_in_half_precision_the_configs_of_text_encoders_say_so(kind: Any, tmp_path: Path) -> None:
    folder, pipeline, largest = kind
    out = merge(folder, f"{RECIPE}out_dtype: bfloat16\n", tmp_path / "out")
    loaded = pipeline.from_pretrained(out, torch_dtype=torch.bfloat16)
    assert getattr(loaded, largest).dtype == torch.bfloat16
    for name in ("text_encoder", "text_encoder_2"):
        config = json.loads((out / name / "config.json").read_text())
        assert config["dtype"] == "bfloat16"
        assert {t.dtype for t in load_file(out / name / "model.safetensors").values()} == {
            torch.bfloat16
        }


def test_a_single_file(kind: Any, tmp_path: Path) -> None:
    folder, _, largest = kind
    kinds = {"unet": "UNet2DConditionModel", "transformer": "FluxTransformer2DModel"}
    component = getattr(diffusers, kinds[largest])
    own = component.from_pretrained(folder / "two", subfolder=largest)
    own.save_pretrained(tmp_path / "two")  # in one file
    first = folder / "one" / largest / "diffusion_pytorch_model.safetensors"
    second = tmp_path / "two" / "diffusion_pytorch_model.safetensors"
    recipe = (
        "merge_method: linear\nparameters: {weight: 0.5}\n"
        f"models: [{{model: {first}}}, {{model: {second}}}]\n"
    )
    out = merge(tmp_path, recipe, tmp_path / "merged.safetensors")
    loaded = component.from_single_file(str(out), config=str(folder / "one"), subfolder=largest)
    one = component.from_pretrained(folder / "one", subfolder=largest).state_dict()
    two = own.state_dict()
    for name, tensor in loaded.state_dict().items():
        torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)


def test_a_whole_pipeline_in_one_file_under_its_original_names(tmp_path: Path) -> None:
    """Interfaces for images read such a file, from a folder with other checkpoints.

    diffusers does not find text encoders of this size in a file: they are passed to it.
    """
    kind = diffusers.StableDiffusionXLPipeline
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    pipelines = {}
    for seed, name in enumerate(("one", "two")):
        write_sdxl(tmp_path / name, seed=seed)
        pipelines[name] = kind.from_pretrained(tmp_path / name)
        write_original(pipelines[name], checkpoints / f"{name}.safetensors")
    torch.save({"state_dict": load_file(checkpoints / "two.safetensors")}, checkpoints / "two.ckpt")
    recipe = (
        "merge_method: linear\nparameters: {weight: 0.5}\n"
        "models: [{model: one.safetensors}, {model: two.ckpt}]\n"
    )
    (tmp_path / "recipe.yaml").write_text(recipe)
    out = checkpoints / "merged.safetensors"
    with working_in(checkpoints):
        resumerge.run(tmp_path / "recipe.yaml", out, state_dir=tmp_path / "state")
    names = {"merged.safetensors", "one.safetensors", "two.ckpt", "two.safetensors"}
    assert {path.name for path in checkpoints.iterdir()} == names
    one = pipelines["one"]
    given = ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
    loaded = kind.from_single_file(
        str(out),
        config=str(tmp_path / "one"),
        local_files_only=True,
        **{name: getattr(one, name) for name in given},
    )
    for part in ("unet", "vae"):
        first, second = (getattr(p, part).state_dict() for p in pipelines.values())
        for name, tensor in getattr(loaded, part).state_dict().items():
            torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
    assert load_file(out).keys() == load_file(checkpoints / "one.safetensors").keys()


def test_a_pipeline_with_an_adapter_is_a_pipeline(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    write_sdxl(tmp_path / "one", 0)
    pipeline = diffusers.DiffusionPipeline.from_pretrained(tmp_path / "one")
    adapted = get_peft_model(pipeline.unet, LoraConfig(r=2, target_modules=["to_q"]))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, 0.1)
    adapted.save_pretrained(tmp_path / "lora")
    file = tmp_path / "lora" / "adapter_model.safetensors"
    named = {k.replace("model.model.", "model.model.unet."): t for k, t in load_file(file).items()}
    save_file(named, file)
    recipe = "merge_method: passthrough\nmodels: [{model: one+lora}]\n"
    out = merge(tmp_path, recipe, tmp_path / "out")
    found = diffusers.DiffusionPipeline.from_pretrained(out).unet.state_dict()
    expected = adapted.merge_and_unload().state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
