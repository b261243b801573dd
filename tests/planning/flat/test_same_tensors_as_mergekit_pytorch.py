"""Checkpoints without config.json give the tensors that mergekit-pytorch 0.1.5 gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit_pytorch
from merging import merge, tensors_of
from safetensors.torch import load_file, save_file
from torch import Tensor

from resumerge.errors import InputError

SHARED = ("conv_in.weight", "blocks.0.attn.weight", "blocks.1.attn.weight", "blocks.2.attn.weight")
COMMON = {
    "linear": "merge_method: linear\nmodels:\n"
    "  - {model: a.safetensors, parameters: {weight: 0.7}}\n"
    "  - {model: b.pt, parameters: {weight: [{filter: blocks.1, value: 2.0}, {value: 0.5}]}}\n",
    "ties": "merge_method: ties\nbase_model: base.safetensors\nmodels:\n"
    "  - {model: a.safetensors, parameters: {weight: 0.7, density: 0.5}}\n"
    "  - {model: b.pt, parameters: {weight: 0.4, density: 0.6}}\n",
    "slerp": "merge_method: slerp\nbase_model: a.safetensors\nmodels:\n"
    "  - {model: a.safetensors}\n  - {model: b.pt}\nparameters: {t: 0.3}\n",
}
OF_ALL = {
    "union": "merge_method: linear\nmodels:\n"
    "  - {model: a.safetensors, parameters: {weight: 1.0}}\n"
    "  - {model: b.pt, parameters: {weight: 2.0}}\n"
    "  - {model: base.safetensors, parameters: {weight: 0.5}}\n",
    "sums": "merge_method: linear\nparameters: {normalize: false}\nmodels:\n"
    "  - {model: a.safetensors, parameters: {weight: 0.3}}\n"
    "  - {model: b.pt, parameters: {weight: 0.4}}\n",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `a`, `b` and `base`, which lack tensors of each other, and `twin`, named as in `a`."""
    folder = tmp_path_factory.mktemp("checkpoints")
    draw = torch.Generator().manual_seed(0)

    def tensors(*more: str) -> dict[str, Tensor]:
        made = {n: torch.randn(12, 8, generator=draw) for n in (*SHARED, *more)}
        return {**made, "steps": torch.arange(4)}

    save_file(tensors("only.a", "a_and_base"), folder / "a.safetensors")
    torch.save(tensors("only.b"), folder / "b.pt")
    save_file(tensors("a_and_base"), folder / "base.safetensors")
    save_file(tensors("only.a", "a_and_base"), folder / "twin.safetensors")
    return folder


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
@pytest.mark.parametrize(
    ("option", "recipes"),
    [("tensor_intersection", COMMON), ("tensor_union", OF_ALL)],
    ids=["intersection", "union"],
)
def test_same_tensors(option: str, recipes: dict[str, str], files: Path, tmp_path: Path) -> None:
    run_mergekit_pytorch(files, recipes, "--" + option.replace("_", "-"))
    for name, text in recipes.items():
        chosen = {option: True}
        ours = tensors_of(merge(files, text, tmp_path / name, **chosen))
        theirs = tensors_of(files / f"{name}.mergekit")
        assert torch.equal(ours.pop("steps"), theirs.pop("steps"))
        assert_same_weights(ours, theirs)
        assert ("only.a" in ours) == (option == "tensor_union")


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
def test_same_tensors_without_an_option(files: Path, tmp_path: Path) -> None:
    """Models that all have the same tensors merge as in mergekit, which refuses other models."""
    twins = {name: text.replace("b.pt", "twin.safetensors") for name, text in COMMON.items()}
    recipes = {f"{name} of twins": text for name, text in twins.items()}
    recipes = {n: t.replace("base_model: base", "base_model: a") for n, t in recipes.items()}
    run_mergekit_pytorch(files, recipes)
    for name, text in recipes.items():
        ours = load_file(merge(files, text, tmp_path / f"{name}.safetensors"))
        theirs = tensors_of(files / f"{name}.mergekit")
        assert "only.a" in ours and ours.pop("steps").equal(theirs.pop("steps"))
        assert_same_weights(ours, theirs)
    with pytest.raises(subprocess.CalledProcessError):
        run_mergekit_pytorch(files, {"refused": COMMON["linear"]})


def test_without_an_option_what_some_lack_is_a_problem(files: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        merge(files, OF_ALL["union"], tmp_path / "out")
    [problem] = error.value.problems
    assert (problem.what, problem.line) == ("Not all models have the same tensors", 2)
    assert problem.found == (
        "b.pt lacks 2: a_and_base, only.a; base.safetensors lacks 2: only.a, only.b; "
        "a.safetensors lacks 1: only.b"
    )
    assert "--tensor-union" in problem.fix and "--tensor-intersection" in problem.fix
    assert not (tmp_path / "out").exists()
