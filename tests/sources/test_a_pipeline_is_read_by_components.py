"""Promise: each file of a diffusers pipeline is known as a weight, a companion, or neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from loopback_hub import Hub
from merging import merge, shards_of, tensors_of
from safetensors.torch import load, load_file, save
from torch import Tensor

import resumerge
from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import list_companions, open_source

INDEX = {
    "_class_name": "SomePipeline",
    "scheduler": ["diffusers", "EulerDiscreteScheduler"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "image_encoder": [None, None],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: ONE}, {model: TWO}]\n"


def pipeline(seed: int) -> dict[str, bytes]:
    """Return the files of a pipeline: weights in one file, in two, and in half precision alone."""
    draw = torch.Generator().manual_seed(seed)

    def tensors(*names: str) -> dict[str, Tensor]:
        return {name: torch.randn(30, 20, generator=draw) for name in names}

    parts = [tensors("down.weight"), tensors("up.weight", "same.weight")]
    files = [f"diffusion_pytorch_model-0000{k}-of-00002.safetensors" for k in (1, 2)]
    weight_map = {name: file for file, part in zip(files, parts) for name in part}
    return {
        "model_index.json": json.dumps(INDEX).encode(),
        "LICENSE.md": b"terms",
        "notes.txt": b"private",
        "sample.safetensors": save(tensors("not.a.component")),
        "scheduler/scheduler_config.json": b"{}",
        "tokenizer/vocab.json": b"{}",
        "tokenizer/merges.txt": b"",
        "unet/config.json": b"{}",
        "unet/diffusion_pytorch_model.safetensors.index.json": json.dumps(
            {"metadata": {}, "weight_map": weight_map}
        ).encode(),
        **{f"unet/{file}": save(part) for file, part in zip(files, parts)},
        "text_encoder/config.json": b'{"dtype": "float16"}',
        "text_encoder/model.fp16.safetensors": save(
            {name: tensor.half() for name, tensor in tensors("same.weight").items()}
        ),
        "vae/config.json": b"{}",
        "vae/diffusion_pytorch_model.safetensors": save(tensors("same.weight")),
        "vae/diffusion_pytorch_model.bin": b"another format",
        "vae_1_0/config.json": b"{}",
        "vae_1_0/diffusion_pytorch_model.safetensors": save(tensors("old.weight")),
    }


NAMES = {
    "text_encoder/same.weight",
    *(f"unet/{name}.weight" for name in ("down", "up", "same")),
    "vae/same.weight",
}
COMPANIONS = [
    *("LICENSE.md", "model_index.json", "scheduler/scheduler_config.json"),
    *("text_encoder/config.json", "tokenizer/merges.txt", "tokenizer/vocab.json"),
    *("unet/config.json", "vae/config.json"),
]
SHARDS = {
    "text_encoder/model.safetensors",
    "unet/diffusion_pytorch_model.safetensors",
    "vae/diffusion_pytorch_model.safetensors",
}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_what_belongs_to_it(tmp_path: Path) -> None:
    source = open_source(read_reference(str(written(tmp_path / "one", pipeline(1)))))
    assert set(source.tensors) == NAMES
    assert all(info.name == name for name, info in source.tensors.items())
    assert len(source.files) == 4
    assert list_companions(source) == COMPANIONS
    assert source.components == {
        "scheduler": "",
        "text_encoder": "model",
        "tokenizer": "",
        "unet": "diffusion_pytorch_model",
        "vae": "diffusion_pytorch_model",
    }


def merged_files(out: Path) -> set[str]:
    return {p.relative_to(out).as_posix() for p in out.rglob("*.safetensors")}


def check_weights(out: Path, one: dict[str, bytes], two: dict[str, bytes]) -> None:
    assert merged_files(out) == SHARDS
    merged = load_file(out / "unet/diffusion_pytorch_model.safetensors")
    assert set(merged) == {"down.weight", "up.weight", "same.weight"}
    name = "vae/diffusion_pytorch_model.safetensors"
    mean = (load(one[name])["same.weight"] + load(two[name])["same.weight"]) / 2
    torch.testing.assert_close(load_file(out / name)["same.weight"], mean)


def test_merged_into_a_folder_of_components(tmp_path: Path) -> None:
    one, two = pipeline(1), pipeline(2)
    written(tmp_path / "one", one)
    written(tmp_path / "two", two)
    recipe = RECIPE.replace("ONE", "one").replace("TWO", "two") + "out_dtype: float32\n"
    out = merge(tmp_path, recipe, tmp_path / "out")
    check_weights(out, one, two)
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert found == {*SHARDS, *COMPANIONS, "README.md", "mergekit_config.yml"}
    assert json.loads((out / "text_encoder/config.json").read_text()) == {"dtype": "float32"}


def test_merged_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    one, two = pipeline(1), pipeline(2)
    hub.commit("org/one", one)
    written(tmp_path / "two", two)
    recipe = RECIPE.replace("ONE", "org/one").replace("TWO", "two")
    out = merge(tmp_path, recipe, tmp_path / "out")
    check_weights(out, one, two)
    asked = {request.path.rpartition("/resolve/")[2].partition("/")[2] for request in hub.requests}
    assert not asked & {"notes.txt", "sample.safetensors"}
    assert not any(name.startswith("vae_1_0/") for name in asked)
    offline = merge(tmp_path, recipe, tmp_path / "again", offline=True)
    check_weights(offline, one, two)


def test_a_mirror_has_every_component(tmp_path: Path) -> None:
    written(tmp_path / "one", pipeline(1))
    written(tmp_path / "two", pipeline(2))
    recipe = RECIPE.replace("ONE", "one").replace("TWO", "two")
    mirror = tmp_path / "mirror"
    out = merge(tmp_path, recipe, tmp_path / "out", mirror=str(mirror), shard_size=3000)
    assert len(merged_files(out)) == 5
    for path in out.rglob("*"):
        if path.is_file():
            assert (mirror / path.relative_to(out)).read_bytes() == path.read_bytes()
    assert resumerge.verify(str(mirror), state_dir=tmp_path / "elsewhere").intact


def test_a_component_that_one_of_them_lacks(tmp_path: Path) -> None:
    written(tmp_path / "one", pipeline(1))
    less = {name: data for name, data in pipeline(2).items() if not name.startswith("vae/")}
    less["model_index.json"] = json.dumps({**INDEX, "vae": [None, None]}).encode()
    written(tmp_path / "two", less)
    recipe = RECIPE.replace("ONE", "one").replace("TWO", "two")
    with pytest.raises(InputError, match="Not all models have the same tensors"):
        merge(tmp_path, recipe, tmp_path / "out")
    with pytest.raises(InputError, match="components of the pipelines differ") as error:
        merge(tmp_path, recipe, tmp_path / "out", tensor_intersection=True)
    assert error.value.problems[0].found == "without any tensor: vae"
    other_way = RECIPE.replace("ONE", "two").replace("TWO", "one")
    with pytest.raises(InputError, match="in other models only: vae"):
        merge(tmp_path, other_way, tmp_path / "out", tensor_union=True)
    out = merge(tmp_path, recipe, tmp_path / "out", tensor_union=True)
    own = pipeline(1)["vae/diffusion_pytorch_model.safetensors"]
    assert (out / "vae/diffusion_pytorch_model.safetensors").stat().st_size > len(own) - 200


def test_a_component_without_weights_is_a_problem(tmp_path: Path) -> None:
    files = pipeline(1)
    del files["text_encoder/model.fp16.safetensors"]
    written(tmp_path / "one", files)
    with pytest.raises(InputError, match="weights of the component text_encoder are missing"):
        open_source(read_reference(str(tmp_path / "one")))


def test_one_component_alone_is_a_model(tmp_path: Path) -> None:
    """A folder of weights with diffusers' names needs no pipeline around it."""
    for name, seed in (("one", 1), ("two", 2)):
        written(tmp_path / name, pipeline(seed))
        (tmp_path / name / "vae/diffusion_pytorch_model.bin").unlink()
        (tmp_path / name / "vae/config.json").unlink()
    recipe = RECIPE.replace("ONE", "one/vae").replace("TWO", "two/vae")
    out = merge(tmp_path, recipe, tmp_path / "out")
    assert set(shards_of(out)) == {"model.safetensors"}
    assert set(tensors_of(out)) == {"same.weight"}
