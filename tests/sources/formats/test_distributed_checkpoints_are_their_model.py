"""Promise: a folder of torch.distributed.checkpoint is the model that was saved, whatever processes
had which part of it; what is not of the model is named; a damaged folder is refused by name."""

from __future__ import annotations

import io
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_checkpoints import save_alone, write_distributed
from merging import merge
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex

from resumerge.errors import InputError
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source


def opened(folder: Path) -> Source:
    return open_source(ModelRef(str(folder), str(folder)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distributed")
    write_distributed(folder)
    whole = torch.load(folder / "whole.pt")
    (folder / "whole").mkdir()
    save_file(whole, folder / "whole" / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", ["sharded", "grid"])
def test_what_four_processes_saved_is_the_whole_model(
    written: Path, tmp_path: Path, name: str
) -> None:
    """FSDP2 divides rows among processes; with tensor parallelism columns are divided too."""
    recipe = f"merge_method: passthrough\nmodels: [{{model: {name}}}]"
    found = load_file(merge(written, recipe, tmp_path / "out") / "model.safetensors")
    whole = torch.load(written / "whole.pt")
    assert found.keys() == whole.keys()
    for key, tensor in whole.items():
        assert torch.equal(found[key].view(torch.int16), tensor.view(torch.int16)), key


def test_a_merge_is_that_of_the_whole_models(written: Path, tmp_path: Path) -> None:
    def recipe(first: str, second: str) -> str:
        models = f"[{{model: {first}}}, {{model: {second}, parameters: {{weight: 0.3}}}}]"
        return f"merge_method: linear\nmodels: {models}\nparameters: {{weight: 0.7}}"

    distributed = merge(written, recipe("sharded", "grid"), tmp_path / "a")
    whole = merge(written, recipe("whole", "whole/model.safetensors"), tmp_path / "b")
    found, expected = (load_file(out / "model.safetensors") for out in (distributed, whole))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_what_is_not_of_the_model_is_named(written: Path) -> None:
    source = opened(written / "sharded")
    [note] = source.notes
    assert "app.optim (" in note and "step (1 value)" in note
    assert not any("optim" in name or name == "step" for name in source.tensors)


STATE = {"a.weight": torch.arange(12.0).reshape(4, 3), "b": torch.tensor(2.0)}
OTHER = {"state": {"a.weight": {"exp_avg": torch.zeros(4, 3)}}, "lr": 0.1}


@pytest.mark.parametrize(
    "saved, left_out",
    [
        (STATE, ()),
        (STATE | {"optimizer": OTHER, "epoch": 3}, ("optimizer (2 values)", "epoch (1 value)")),
        ({"model": STATE, "optim": OTHER}, ("optim (2 values)",)),
        ({"state_dict": STATE | {"extra": io.BytesIO(b"x")}}, ("state_dict.extra (1 value)",)),
        ({"app": {"model": STATE, "optim": OTHER}}, ("app.optim (2 values)",)),
        ({"model": {f"module.{k}": v for k, v in STATE.items()}}, ("without 'module.'",)),
        ({"model": STATE, "teacher": STATE}, ("teacher (2 values)",)),
    ],
)
def test_names_are_those_of_the_model(
    saved: dict[str, Any], left_out: tuple[str, ...], tmp_path: Path
) -> None:
    source = opened(save_alone(saved, tmp_path / "dcp"))
    assert sorted(source.tensors) == sorted(STATE)
    notes = "\n".join(source.notes)
    assert all(entry in notes for entry in left_out)
    assert bool(left_out) == bool(notes)


@pytest.mark.parametrize(
    "saved, found",
    [
        ({"model": STATE, "app": {"model": STATE}}, "app.model"),
        ({"optim": OTHER}, "optim (2 values)"),
    ],
)
def test_no_model_or_several_are_refused(saved: dict[str, Any], found: str, tmp_path: Path) -> None:
    refused(save_alone(saved, tmp_path / "dcp"), found)


def test_weights_beside_it_are_read_first(tmp_path: Path) -> None:
    folder = save_alone(STATE, tmp_path / "dcp")
    save_file({"c": torch.ones(2)}, folder / "model.safetensors")
    assert list(opened(folder).tensors) == ["c"]


def refused(folder: Path, found: str = "", where: str = ".metadata") -> None:
    with pytest.raises(InputError) as caught:
        opened(folder)
    [problem] = caught.value.problems
    assert problem.where == str(folder / where)
    assert found in problem.found
    assert problem.expected and problem.fix
    assert len(str(problem)) < 2000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_alone({"model": STATE}, tmp_path / "dcp")


def changed(folder: Path, change: Callable[[Metadata], Any]) -> None:
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def _entry(metadata: Metadata) -> Any:
    return metadata.state_dict_metadata["model.a.weight"]


def _place(metadata: Metadata) -> Any:
    return metadata.storage_data[MetadataIndex("model.a.weight", (0, 0))]


def _cut(metadata: Metadata, *chunks: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    place = _place(metadata)
    _entry(metadata).chunks = [
        ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in chunks
    ]
    for offsets, _ in chunks:
        metadata.storage_data[MetadataIndex("model.a.weight", offsets)] = place


LIES: dict[str, tuple[Callable[[Metadata], Any], str, str]] = {
    "a chunk is missing": (lambda m: _cut(m, ((0, 0), (3, 3))), "gap", ".metadata"),
    "the first chunk is missing": (lambda m: _cut(m, ((1, 0), (3, 3))), "gap", ".metadata"),
    "a corner is missing": (
        lambda m: _cut(m, ((0, 0), (2, 2)), ((0, 2), (2, 1)), ((2, 0), (2, 2))),
        "gap",
        ".metadata",
    ),
    "no chunks": (lambda m: _cut(m), "0 chunks", ".metadata"),
    "chunks overlap": (
        lambda m: _cut(m, ((0, 0), (3, 3)), ((2, 0), (2, 3))),
        "overlap",
        ".metadata",
    ),
    "the same chunk twice": (lambda m: _cut(m, *[((0, 0), (4, 3))] * 2), "twice", ".metadata"),
    "a chunk leads out": (lambda m: _cut(m, ((0, 0), (5, 3))), "overlap", ".metadata"),
    "a chunk of other dimensions": (lambda m: _cut(m, ((0,), (4,))), "dimensions", ".metadata"),
    "a chunk is nowhere": (
        lambda m: m.storage_data.pop(MetadataIndex("model.a.weight", (0, 0))),
        "none for 'a.weight'",
        ".metadata",
    ),
    "a negative size": (
        lambda m: setattr(_entry(m), "size", (-4, 3)),
        "whole numbers",
        ".metadata",
    ),
    "a larger tensor": (
        lambda m: setattr(_entry(m), "size", torch.Size((5, 3))),
        "gap",
        ".metadata",
    ),
    "another shape": (
        lambda m: (
            setattr(_entry(m), "size", torch.Size((3, 4))),
            _cut(m, ((0, 0), (3, 4))),
        ),
        "[4, 3]",
        "__0_0.distcp",
    ),
    "another dtype": (
        lambda m: setattr(_entry(m).properties, "dtype", torch.int32),
        "F32",
        "__0_0.distcp",
    ),
    "a place behind the file": (
        lambda m: setattr(_place(m), "length", 1 << 40),
        "bytes",
        "__0_0.distcp",
    ),
    "a place in another tensor": (
        lambda m: setattr(_place(m), "offset", 7),
        "b'",
        "__0_0.distcp",
    ),
    "a shorter place": (lambda m: setattr(_place(m), "length", 100), "", "__0_0.distcp"),
    "a place in another folder": (
        lambda m: setattr(_place(m), "relative_path", "../secret"),
        "../secret",
        ".metadata",
    ),
    "a missing file": (
        lambda m: setattr(_place(m), "relative_path", "__9_0.distcp"),
        "__9_0.distcp",
        ".metadata",
    ),
    "a compressed chunk": (
        lambda m: setattr(_place(m), "transform_descriptors", ["zstd"]),
        "zstd",
        ".metadata",
    ),
    "no entries": (lambda m: setattr(m, "state_dict_metadata", None), "", ".metadata"),
    "entries that are something else": (
        lambda m: m.state_dict_metadata.update({"model.a.weight": 3}),
        "",
        ".metadata",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_metadata_that_lies(lie: str, folder: Path) -> None:
    change, found, where = LIES[lie]
    changed(folder, change)
    refused(folder, found, where)


class _Calls:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def test_metadata_that_would_run_something(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    changed(folder, lambda m: setattr(m, "planner_data", _Calls()))
    refused(folder, "system")
    assert not (folder / "executed").exists()


def test_metadata_of_another_class(folder: Path) -> None:
    raw = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(raw.replace(b"_StorageInfo", b"_StorageOdds"))
    refused(folder, "torch.distributed.checkpoint.filesystem._StorageOdds")
    (folder / ".metadata").write_bytes(pickle.dumps({"a": 1}))
    refused(folder, "no Metadata")


def test_truncated_metadata(folder: Path) -> None:
    raw = (folder / ".metadata").read_bytes()
    for length in (0, 1, len(raw) // 2, len(raw) - 1):
        (folder / ".metadata").write_bytes(raw[:length])
        refused(folder)


def test_any_damage_is_refused_or_harmless(folder: Path) -> None:
    """The only error that changed bytes cause is one that says where the problem is."""
    generator = random.Random(5)
    for name in (".metadata", "__0_0.distcp"):
        raw = (folder / name).read_bytes()
        for _ in range(150):
            damaged = bytearray(raw)
            for _ in range(generator.randint(1, 3)):
                damaged[generator.randrange(len(raw))] = generator.randrange(256)
            (folder / name).write_bytes(damaged)
            try:
                opened(folder)
            except InputError as error:
                assert all(problem.where for problem in error.problems)
        (folder / name).write_bytes(raw)
