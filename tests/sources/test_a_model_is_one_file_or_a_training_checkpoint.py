"""A recipe's model may be one weight file, or a folder of weights without a config.json."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from ledger_rows import query
from merging import merge, shards_of, tensors_of
from safetensors.torch import save_file
from torch import Tensor

import resumerge
from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import list_companions, open_source

TENSORS: dict[str, Tensor] = {
    "a.weight": torch.randn(40, 30, generator=torch.Generator().manual_seed(1)),
    "b.weight": torch.randn(7, generator=torch.Generator().manual_seed(2)),
}
OTHERS = {name: tensor * 2 + 1 for name, tensor in TENSORS.items()}


def recipe(first: str, second: str) -> str:
    return (
        "merge_method: linear\nparameters: {weight: 1}\n"
        f"models: [{{model: {first}}}, {{model: {second}}}]\n"
    )


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)


@pytest.mark.parametrize("suffix", ["safetensors", "bin", "pt", "pth", "ckpt"])
def test_one_file_makes_one_file(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"first.{suffix}", TENSORS)
    write(tmp_path / "second.safetensors", OTHERS)
    (tmp_path / "tokenizer.json").write_text("{}")  # not the file's
    out = merge(tmp_path, recipe(f"first.{suffix}", "second.safetensors"), tmp_path / "out")
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "mergekit_config.yml",
        "model.safetensors",
    ]
    found = tensors_of(out)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        torch.testing.assert_close(found[name], (tensor + OTHERS[name]) / 2)
    assert "library_name" not in (out / "README.md").read_text()


def test_a_folder_of_a_training_checkpoint(tmp_path: Path) -> None:
    """Weights may be in files of any names; the optimizer's state is no part of the model."""
    for name, tensors in (("one", TENSORS), ("two", OTHERS)):
        for part, (key, tensor) in enumerate(tensors.items()):
            write(tmp_path / name / f"weights_{part}.pt", {key: tensor})
        write(tmp_path / name / "optimizer.pt", {"a.weight": torch.zeros(1)})
    out = merge(tmp_path, recipe("one", "two"), tmp_path / "out", shard_size=1000)
    assert sorted(shards_of(out)) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert tensors_of(out).keys() == TENSORS.keys()


def test_plan_verify_and_status_know_it_as_any_other(tmp_path: Path) -> None:
    write(tmp_path / "models/first.ckpt", TENSORS)
    write(tmp_path / "models/second.ckpt", {**OTHERS, "more": torch.zeros(1)})
    text = recipe(str(tmp_path / "models/first.ckpt"), str(tmp_path / "models/second.ckpt"))
    (tmp_path / "merge.yaml").write_text(text)
    options = {"state_dir": tmp_path / "state"}
    config, out = tmp_path / "merge.yaml", tmp_path / "models/out"  # beside the files
    found = resumerge.plan(config, out, **options)
    assert [p["what"] for p in found["problems"]] == ["Not all models have the same tensors"]
    found = resumerge.plan(config, out, tensor_union=True, **options)
    assert (found["problems"], found["units"]) == ([], 3)
    resumerge.run(config, out, tensor_union=True, **options)
    assert resumerge.status(out, **options)["runs"][0]["state"] == "done"
    assert resumerge.verify(out, **options).intact


def test_a_run_goes_on_as_it_was_planned(tmp_path: Path) -> None:
    """The run keeps its option: the command that resumes it need not repeat it."""
    write(tmp_path / "first.pt", TENSORS)
    write(tmp_path / "second.pt", {"a.weight": OTHERS["a.weight"]})
    text = recipe("first.pt", "second.pt")
    out = merge(tmp_path, text, tmp_path / "out", tensor_union=True)
    (folder,) = (tmp_path / "out.state").glob("out-*")
    assert (
        '"tensor_union": true'
        in query(folder / "ledger.db", "SELECT options FROM run")[0]["options"]
    )
    before = shards_of(out)
    shutil.rmtree(out)
    again = merge(tmp_path, text, out, tensor_union=None, restart=False)
    assert shards_of(again) == before
    with pytest.raises(InputError, match="An option has changed"):
        merge(tmp_path, text, out, tensor_intersection=True)


def test_the_folder_that_a_file_lies_in_is_not_its_model(tmp_path: Path) -> None:
    write(tmp_path / "first.pt", TENSORS)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    source = open_source(read_reference(str(tmp_path / "first.pt")))
    assert source.single and source.config == {} and list_companions(source) == []
    assert [*source.files] == ["first.pt"]


def test_names_with_signs_of_revisions_and_adapters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a@b.pt", "a+b.pt"):
        write(tmp_path / name, TENSORS)
        assert open_source(read_reference(name)).tensors.keys() == TENSORS.keys()


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(b"HDF")
    with pytest.raises(InputError, match="not a model that can be read"):
        open_source(read_reference(str(tmp_path / "model.h5")))
