"""A folder with several sets of weights is read as transformers reads it, and notes say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from resumerge.errors import InputError, Problem
from resumerge.recipe.references import read_reference
from resumerge.sources import Source, open_source
from resumerge.sources.index import ADAPTER, INDEX_FILE, MODEL, Contents

SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
BIN_INDEX = "pytorch_model.bin.index.json"
ONE, TWO, THREE = (
    {"a": torch.full((2, 3), number), "b": torch.full((4,), number)} for number in (1.0, 2.0, 3.0)
)


def opened(folder: Path) -> Source:
    return open_source(read_reference(str(folder)))


def values(source: Source) -> dict[str, Tensor]:
    """Return the tensors that a source names, from the files that it names for them."""
    found = {}
    for name, stored in source.tensors.items():
        path = source.path(stored.file)
        held = load_file(path) if path.suffix == ".safetensors" else torch.load(path)
        found[name] = held[name]
    return found


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def written(folder: Path, files: Mapping[str, Mapping[str, Tensor]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for name, tensors in files.items():
        if name.endswith(".safetensors"):
            save_file(dict(tensors), folder / name, metadata={"format": "pt"})
        else:
            torch.save(dict(tensors), folder / name)
    return folder


def indexed(folder: Path, weight_map: Mapping[str, str], index: str = INDEX_FILE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def sharded(folder: Path, tensors: Mapping[str, Tensor]) -> Path:
    written(folder, {file: {name: tensors[name]} for file, name in zip(SHARDS, "ab")})
    return indexed(folder, dict(zip("ab", SHARDS)))


def old_index(folder: Path) -> None:
    """Write a model, and an index of files that are gone, as save_pretrained leaves it."""
    written(indexed(folder, {"a": SHARDS[0], "b": SHARDS[1]}), {"model.safetensors": ONE})


def file_and_shards(folder: Path) -> None:
    written(sharded(folder, TWO), {"model.safetensors": ONE})


def shards_and_torch(folder: Path) -> None:
    written(sharded(folder, ONE), {"pytorch_model.bin": TWO})


def torch_file_and_index(folder: Path) -> None:
    written(folder, {"pytorch_model.bin": ONE, "pytorch_model-00001-of-00001.bin": TWO})
    indexed(folder, dict.fromkeys("ab", "pytorch_model-00001-of-00001.bin"), BIN_INDEX)


def torch_index_beside_safetensors(folder: Path) -> None:
    written(folder, {"model.safetensors": ONE, "pytorch_model-00001-of-00001.bin": TWO})
    indexed(folder, dict.fromkeys("ab", "pytorch_model-00001-of-00001.bin"), BIN_INDEX)


def shard_of_an_older_model(folder: Path) -> None:
    written(sharded(folder, ONE), {"model-00001-of-00003.safetensors": TWO})


def named_by_the_config(folder: Path) -> None:
    written(folder, {"model.safetensors": TWO, "other.safetensors": ONE})
    (folder / "config.json").write_text('{"transformers_weights": "other.safetensors"}')


FOLDERS: dict[Callable[[Path], None], tuple[str, str]] = {
    old_index: ("model.safetensors", INDEX_FILE),
    file_and_shards: ("model.safetensors", f"{SHARDS[0]}, {SHARDS[1]}, {INDEX_FILE}"),
    shards_and_torch: (INDEX_FILE, "pytorch_model.bin"),
    torch_file_and_index: (
        "pytorch_model.bin",
        f"pytorch_model-00001-of-00001.bin, {BIN_INDEX}",
    ),
    torch_index_beside_safetensors: (
        "model.safetensors",
        f"pytorch_model-00001-of-00001.bin, {BIN_INDEX}",
    ),
    shard_of_an_older_model: (INDEX_FILE, "model-00001-of-00003.safetensors"),
    named_by_the_config: ("other.safetensors", "model.safetensors"),
}


def loaded_by_transformers(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the files that transformers chooses, as it puts them together."""
    from transformers.modeling_utils import _get_resolved_checkpoint_files

    config = json.loads((folder / "config.json").read_text())
    files, _ = _get_resolved_checkpoint_files(
        *(str(folder), None, None, None, None, False, config.get("transformers_weights")),
    )
    found = {}
    for file in files:
        found |= load_file(file) if file.endswith(".safetensors") else torch.load(file)
    return found


@pytest.mark.parametrize("make", FOLDERS)
def test_several_sets_of_weights(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "model")
    source = opened(tmp_path / "model")
    assert same(values(source), ONE) and same(loaded_by_transformers(tmp_path / "model"), ONE)
    read, beside = FOLDERS[make]
    assert source.notes == (f"{tmp_path}/model: read from {read}; not read: {beside}",)
    assert "transformers_weights" not in source.config


def test_states_of_training_and_one_set_of_weights_are_no_note(tmp_path: Path) -> None:
    written(sharded(tmp_path / "model", ONE), {"optimizer.pt": TWO, "training_args.bin": TWO})
    assert opened(tmp_path / "model").notes == ()


@pytest.mark.parametrize("other", [ONE["b"], TWO["b"]], ids=["equal", "different"])
def test_a_tensor_in_two_shards(other: Tensor, tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model", ONE)
    save_file({"a": ONE["a"], "b": other}, folder / SHARDS[0], metadata={"format": "pt"})
    source = opened(folder)
    assert same(values(source), ONE) and same(loaded_by_transformers(folder), ONE)
    assert source.notes == (
        f"{folder}: weight files and index disagree, and are read as transformers reads them: "
        f"b (in {SHARDS[0]}; read from {SHARDS[1]})",
    )


def test_a_tensor_in_another_shard_than_the_index_says(tmp_path: Path) -> None:
    folder = indexed(sharded(tmp_path / "model", ONE), {"a": SHARDS[0], "b": SHARDS[0]})
    with pytest.raises(InputError, match="no such tensor"):
        opened(folder)
    indexed(folder, {"a": SHARDS[1], "b": SHARDS[0]})
    source = opened(folder)
    assert same(values(source), ONE)
    assert f"a (not in {SHARDS[1]}; read from {SHARDS[0]})" in source.notes[0]


def test_adapters_are_read_as_peft_reads_them(tmp_path: Path) -> None:
    files = ["adapter_model.safetensors", "other.safetensors"]
    folder = written(tmp_path / "adapter", dict(zip(files, (ONE, TWO))))
    indexed(folder, dict.fromkeys("ab", files[1]), "adapter_model.safetensors.index.json")
    source = open_source(read_reference(str(folder)), contents=ADAPTER)
    assert same(values(source), ONE)
    assert "not read: adapter_model.safetensors.index.json, other.safetensors" in source.notes[0]


def refusal(folder: Path) -> tuple[str, str, str]:
    with pytest.raises(InputError) as caught:
        opened(folder)
    [problem] = caught.value.problems
    return problem.what, problem.found or "", problem.fix or ""


def test_shards_without_an_index(tmp_path: Path) -> None:
    (sharded(tmp_path / "model", ONE) / INDEX_FILE).unlink()
    what, found, fix = refusal(tmp_path / "model")
    assert what == "The weights of a model have no index"
    assert found == ", ".join(SHARDS)
    assert fix.startswith(f"download or upload {INDEX_FILE} too, or save the model again")
    (tmp_path / "model" / SHARDS[0]).unlink()
    what, found, fix = refusal(tmp_path / "model")
    assert found == f"{SHARDS[1]}; and no {SHARDS[0]}" and fix.endswith("with the missing files")


def test_shards_that_are_not_all_there_and_no_config(tmp_path: Path) -> None:
    (sharded(tmp_path / "model", ONE) / INDEX_FILE).unlink()
    (tmp_path / "model" / "config.json").unlink()
    assert same(values(opened(tmp_path / "model")), ONE)
    (tmp_path / "model" / SHARDS[1]).unlink()
    assert refusal(tmp_path / "model")[:2] == ("Weight files are missing", f"no {SHARDS[1]}")


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "weights.safetensors", "best.pt"])
def test_weights_under_another_name(name: str, tmp_path: Path) -> None:
    what, _, fix = refusal(written(tmp_path / "model", {name: ONE}))
    right = "pytorch_model.bin" if name == "best.pt" else "model.safetensors"
    assert what == "The weights of a model are missing"
    assert fix == f"rename {name} to {right}, the name that it is looked for under"


@pytest.mark.parametrize("name", ["absent.safetensors", "../x.safetensors", "model.bin", 7])
def test_the_config_names_weights_that_cannot_be_read(name: object, tmp_path: Path) -> None:
    written(tmp_path / "model", {"model.safetensors": ONE})
    (tmp_path / "model/config.json").write_text(json.dumps({"transformers_weights": name}))
    assert refusal(tmp_path / "model")[0] == "The config names weights that cannot be read"


DIFFUSERS = "diffusion_pytorch_model"
COMPONENTS = {
    "index before file": (
        ["diffusers", "AutoencoderKL"],
        {f"{DIFFUSERS}.safetensors": TWO, "one.safetensors": ONE},
        {f"{DIFFUSERS}.safetensors.index.json": "one.safetensors"},
    ),
    "file before index": (
        ["transformers", "CLIPTextModel"],
        {"model.safetensors": ONE, "two.safetensors": TWO},
        {"model.safetensors.index.json": "two.safetensors"},
    ),
    "full before half": (
        ["diffusers", "UNet2DConditionModel"],
        {f"{DIFFUSERS}.safetensors": ONE, f"{DIFFUSERS}.fp16.safetensors": TWO},
        {},
    ),
    "full torch before half": (
        ["transformers", "CLIPTextModel"],
        {"pytorch_model.bin": ONE, "model.fp16.safetensors": TWO},
        {},
    ),
    "full shards before half": (
        ["diffusers", "UNet2DConditionModel"],
        {"one.safetensors": ONE, f"{DIFFUSERS}.fp16.safetensors": TWO},
        {f"{DIFFUSERS}.safetensors.index.json": "one.safetensors"},
    ),
    "an older name of the index": (
        ["diffusers", "UNet2DConditionModel"],
        {"one.safetensors": ONE, f"{DIFFUSERS}.bf16.safetensors": TWO},
        {f"{DIFFUSERS}.safetensors.fp16.index.json": "one.safetensors"},
    ),
    "the library's own names first": (
        ["transformers", "CLIPTextModel"],
        {"model.safetensors": ONE, f"{DIFFUSERS}.safetensors": TWO},
        {},
    ),
}


@pytest.mark.parametrize("kind", COMPONENTS)
def test_components_of_pipelines(kind: str, tmp_path: Path) -> None:
    described, files, indexes = COMPONENTS[kind]
    folder = written(tmp_path / "pipeline/part", files)
    for index, file in indexes.items():
        indexed(folder, dict.fromkeys("ab", file), index)
    (tmp_path / "pipeline/model_index.json").write_text(json.dumps({"part": described}))
    source = opened(tmp_path / "pipeline")
    stored = {name: load_any(source.path(t.file)) for name, t in source.tensors.items()}
    assert {name: held[name.removeprefix("part/")].mean() for name, held in stored.items()} == {
        "part/a": 1.0,
        "part/b": 1.0,
    }
    [note] = [note for note in source.notes if "not read" in note]
    two = next(name for name, tensors in files.items() if tensors is TWO)
    assert f"part/{two}" in note.partition("; not read: ")[2]


def load_any(path: Path) -> dict[str, Tensor]:
    return load_file(path) if path.suffix == ".safetensors" else torch.load(path)


def test_half_precision_alone_is_told(tmp_path: Path) -> None:
    written(tmp_path / "pipeline/part", {"model.fp16.safetensors": ONE})
    index = {"part": ["transformers", "CLIPTextModel"]}
    (tmp_path / "pipeline/model_index.json").write_text(json.dumps(index))
    assert opened(tmp_path / "pipeline").notes == (
        f"{tmp_path}/pipeline: read from part/model.fp16.safetensors, for there are no weights in "
        "full precision",
    )


# What is no set of weights


def refused(folder: Path, contents: Contents = MODEL) -> Problem:
    with pytest.raises(InputError) as told:
        open_source(read_reference(str(folder)), contents=contents)
    [problem] = told.value.problems
    return problem


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        ("<!DOCTYPE html><html><title>Sign in</title></html>", "page for a browser"),
        ("\n<html><body>403 Forbidden</body></html>", "page for a browser"),
    ],
)
def test_what_lies_in_place_of_weights_is_named(
    text: str, found: str, name: str, tmp_path: Path
) -> None:
    written(tmp_path, {})
    (tmp_path / name).write_text(text)
    problem = refused(tmp_path)
    assert problem.what.startswith("This is no ") and found in str(problem.found)


def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    written(tmp_path, {})
    (tmp_path / "model.safetensors").symlink_to("../../blobs/0123")
    problem = refused(tmp_path)
    assert problem.found == "links to files that do not exist: model.safetensors"


def test_folders_of_several_adapters_or_checkpoints_are_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / "models" / name, {"model.safetensors": ONE})
        (tmp_path / "adapters" / name).mkdir(parents=True)
        (tmp_path / "adapters" / name / "adapter_config.json").write_text("{}")
    assert str(refused(tmp_path / "models").fix).endswith(": one, two")
    assert str(refused(tmp_path / "adapters", ADAPTER).fix).endswith(": one, two")


def test_missing_shards_are_counted(tmp_path: Path) -> None:
    """The message has the names of the first missing shards."""
    save_file(ONE, tmp_path / "model-00002-of-00163.safetensors")
    found = str(refused(tmp_path).found)
    assert found.startswith("no model-00001-of-00163.safetensors, model-00003-of-00163.safetensors")
    assert found.endswith("model-00009-of-00163.safetensors and 154 more")


def test_a_config_that_was_not_downloaded(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", {"model.safetensors": ONE})
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    (folder / "config.json").write_text(pointer)
    what, found, fix = refusal(folder)
    assert what == "config.json is not readable"
    assert "Git LFS pointer" in found
    assert "download" in fix
