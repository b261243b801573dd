"""Experts are merged one by one; with ``experts: together`` as mergekit merges them: a layer's as
one tensor. Both are written under the names on disk.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from loading import loaded, output
from merging import merge, shards_of, tensors_of, working_in
from safetensors.torch import load_file, save_file
from torch import Tensor

import resumerge
from resumerge.errors import InputError
from resumerge.recipe import parse_recipe

Family = Callable[[str], Path]

EXPERT = re.compile(r"(.+)\.experts\.(\d+)\.(\w+)\.weight")
NAMES = {"w1": ("gate_up_proj", 0), "w3": ("gate_up_proj", 1), "w2": ("down_proj", 0)}
NAMES |= {"gate_proj": NAMES["w1"], "up_proj": NAMES["w3"], "down_proj": NAMES["w2"]}

PAIR = """
dtype: float32
merge_method: {method}
models:
- {{model: math, parameters: {{weight: {math}}}}}
- {{model: code, parameters: {{weight: 0.6}}}}
"""
CHANGES = """
dtype: float32
merge_method: {method}
base_model: base
models:
- {{model: math, parameters: {{weight: 0.3, density: 0.3}}}}
- {{model: code, parameters: {{weight: 0.6, density: 0.5}}}}
"""
TWO = """
dtype: float32
merge_method: {method}
base_model: base
models: [{{model: math}}]
parameters: {{t: 0.4}}
"""
STOCK = """
dtype: float32
merge_method: model_stock
base_model: base
models: [{model: math}, {model: code}]
"""
FILTERS = (
    "[{filter: experts.gate_up, value: 0.9}, {filter: mlp.gate, value: 0.1},"
    " {filter: mlp, value: 0.5}, {filter: proj.weight, value: 0.2}, {value: 0.4}]"
)
RECIPES = {
    "ties": CHANGES.format(method="ties"),
    "breadcrumbs": CHANGES.format(method="breadcrumbs"),
    "sce": STOCK.replace("model_stock", "sce") + "parameters: {select_topk: 0.4}\n",
    "arcee_fusion": TWO.format(method="arcee_fusion"),
    "slerp": TWO.format(method="slerp"),
    "nuslerp": PAIR.format(method="nuslerp", math=0.3),
    "karcher": PAIR.format(method="karcher", math=0.3),
    "model_stock": STOCK,
    "filters": PAIR.format(method="linear", math=FILTERS),
}
ELEMENTWISE = ["filters"]
"""What gives the same weights with experts apart."""


def packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors as transformers has them after loading."""
    found, groups = {}, defaultdict[str, dict[tuple[int, int], Tensor]](dict)
    for name, tensor in tensors.items():
        plain = name.replace("block_sparse_moe", "mlp")
        if expert := EXPERT.fullmatch(plain):
            projection, place = NAMES[expert[3]]
            groups[f"{expert[1]}.experts.{projection}"][int(expert[2]), place] = tensor
        else:
            found[plain] = tensor
    for name, matrices in groups.items():
        numbers, places = ({key[k] for key in matrices} for k in (0, 1))
        rows = [torch.cat([matrices[n, p] for p in sorted(places)]) for n in sorted(numbers)]
        found[name] = torch.stack(rows)
    return found


MODELS = ("mixtral", "qwen3_moe")
SHORT = [
    *(("mixtral", recipe) for recipe in RECIPES),
    *(("qwen3_moe", recipe) for recipe in ("ties", "filters")),
]
"""Every recipe, and both ways to name experts: what is tried without --soak."""


def of(name: str, recipe: str) -> str:
    """Return a recipe for one of the families of models."""
    return RECIPES[recipe].replace("model: ", f"model: {name}/")


@pytest.fixture(scope="module")
def mixtures(family: Family, tmp_path_factory: pytest.TempPathFactory, soak: bool) -> Path:
    """Make both families, whose experts changed by unequal amounts, and mergekit's outputs.

    Each family has `base`, `math` and `code`. The outputs exist only if mergekit is installed.
    """
    root = tmp_path_factory.mktemp("mixtures")
    for name in MODELS:
        folder = root / name
        shutil.copytree(family(name) / "base", folder / "base")
        base = load_file(folder / "base" / "model.safetensors")
        for seed, variant in enumerate(("math", "code"), start=1):
            shutil.copytree(folder / "base", folder / variant)
            tensors = changed(base, seed)
            save_file(tensors, folder / variant / "model.safetensors", metadata={"format": "pt"})
    if MERGEKIT is not None:
        pairs = product(MODELS, RECIPES) if soak else SHORT
        texts = {f"{name}-{recipe}": of(name, recipe) for name, recipe in pairs}
        run_mergekit(root, texts)
    return root


def changed(tensors: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes: dict[tuple[str, ...], float] = {}
    found = {}
    for name, tensor in tensors.items():
        expert = EXPERT.fullmatch(name)
        key = expert.groups()[:2] if expert else (name,)
        size = sizes.setdefault(key, 0.002 * 4 ** float(torch.rand(1, generator=generator)))
        found[name] = tensor + torch.empty_like(tensor).normal_(0, size, generator=generator)
    return found


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_together_they_have_mergekits_weights(
    name: str, recipe: str, mixtures: Path, tmp_path: Path, soak: bool
) -> None:
    if (name, recipe) not in SHORT and not soak:
        pytest.skip("one way to name experts is enough for every day: the other with --soak")
    text, theirs = of(name, recipe), tensors_of(mixtures / f"{name}-{recipe}.mergekit")
    together = merge(mixtures, text + "experts: together\n", tmp_path / "together")
    assert_same_weights(packed(tensors_of(together)), theirs)
    apart = packed(tensors_of(merge(mixtures, text, tmp_path / "apart")))
    if recipe in ELEMENTWISE:
        assert_same_weights(apart, theirs)
    else:
        experts = [name for name in theirs if ".experts." in name]
        assert not all(torch.allclose(apart[name], theirs[name]) for name in experts)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "deepseek_v3", "jamba"])
def test_they_are_written_under_the_names_on_disk(
    name: str, family: Family, tmp_path: Path
) -> None:
    models = family(name)
    text = CHANGES.format(method="ties") + "experts: together\n"
    out = merge(models, text, tmp_path / "out")
    ours, base = tensors_of(out), tensors_of(models / "base")
    assert {n: t.shape for n, t in ours.items()} == {n: t.shape for n, t in base.items()}
    output(name, loaded(name, out))


def test_several_shards_and_an_index(family: Family, tmp_path: Path) -> None:
    text = CHANGES.format(method="ties") + "experts: together\n"
    whole = tensors_of(merge(family("mixtral"), text, tmp_path / "whole"))
    out = merge(family("mixtral"), text, tmp_path / "out", shard_size=20_000)
    found = tensors_of(out)
    assert all(torch.equal(found[name], tensor) for name, tensor in whole.items())
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == whole.keys()
    for name, file in index["weight_map"].items():
        assert name in load_file(out / file)


def test_blocks_that_end_inside_an_expert(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CHANGES.format(method="ties") + "experts: together\n"
    whole = merge(family("mixtral"), text, tmp_path / "whole")
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 1000)
    monkeypatch.setattr("resumerge.engine.resources.governor.Governor.cache_is_scarce", True)
    out = merge(family("mixtral"), text, tmp_path / "out")
    assert shards_of(out) == shards_of(whole)


def test_layers_that_are_stacked(family: Family, tmp_path: Path) -> None:
    slices = """
merge_method: passthrough
slices:
  - sources: [{model: math, layer_range: [0, 3], parameters: {scale: 0.5}}]
  - sources: [{model: code, layer_range: [1, 4]}]
"""
    apart = tensors_of(merge(family("mixtral"), slices, tmp_path / "apart"))
    out = merge(family("mixtral"), slices + "experts: together\n", tmp_path / "together")
    together = tensors_of(out)
    assert together.keys() == apart.keys()
    assert all(torch.equal(together[name], tensor) for name, tensor in apart.items())


def test_filters_see_the_packed_tensor(family: Family, tmp_path: Path) -> None:
    """A filter cannot match one expert, or one of two fused projections, in a packed tensor."""
    text = "merge_method: passthrough\nmodels: [{{model: math, parameters: {{scale: {0}}}}}]\n"
    scales = "[{filter: experts.0., value: 2}, {filter: w1, value: 3}, {value: 1}]"
    math = tensors_of(family("mixtral") / "math")
    apart = tensors_of(merge(family("mixtral"), text.format(scales), tmp_path / "apart"))
    for name, tensor in math.items():
        scale = 2 if ".experts.0." in name else 3 if ".w1." in name else 1
        assert torch.equal(apart[name], scale * tensor), name
    together = text.format(scales) + "experts: together\n"
    for name, tensor in tensors_of(merge(family("mixtral"), together, tmp_path / "all")).items():
        assert torch.equal(tensor, math[name]), name


@pytest.mark.parametrize(
    ("name", "method", "note"),
    [
        ("llama", "ties", "no layer has experts"),
        ("mixtral", "iso_c", "iso_c takes one matrix at a time"),
    ],
)
def test_where_it_has_no_effect_it_is_noted(
    name: str, method: str, note: str, family: Family, tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text(CHANGES.format(method=method) + "experts: together\n")
    with working_in(family(name)):
        notes = resumerge.plan(tmp_path / "recipe.yaml")["notes"]
    assert any(f"experts has no effect: {note}" in line for line in notes)


@pytest.mark.parametrize("value", ["apart", "{source_model: math}", "true"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="The value of 'experts' is invalid"):
        parse_recipe(STOCK + f"experts: {value}\n")
