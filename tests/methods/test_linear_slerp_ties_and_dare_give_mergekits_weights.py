"""Recipes of linear, SLERP, TIES and DARE give the weights of mergekit 0.1.5, within 1e-5."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from merging import merge, tensors_of, working_in
from tiny_models import write_family
from torch import Tensor

pytestmark = pytest.mark.skipif(MERGEKIT is None, reason="mergekit-yaml is not installed")

BOTH = """
models:
  - {model: math, parameters: {weight: 0.3}}
  - {model: code, parameters: {weight: 0.9}}
"""
GRADIENTS = """
models:
  - {model: math, parameters: {weight: [0.2, 1, 0.4], density: [0.9, 0.2]}}
  - {model: code, parameters: {weight: 0.6, density: [0.3, 0.5, 0.7]}}
"""
FILTERS = """
models:
  - model: math
    parameters:
      weight: [{filter: mlp, value: [0.1, 0.8]}, {filter: layers.2., value: 2}, {value: 0.4}]
      density: [{filter: self_attn, value: 0.25}, {value: 0.75}]
  - model: code
    parameters: {weight: [{filter: norm, value: 0.5}, {filter: "*", value: 1}], density: 0.5}
"""
BASE_LISTED = """
models:
  - {model: math, parameters: {weight: 0.7, density: 0.6}}
  - {model: base}
  - {model: code, parameters: {weight: 0.4, density: 0.1}}
"""
ONE = "models: [{model: math, parameters: {weight: 0.5, density: 0.3}}]\n"
SLICES = """
slices:
  - sources:
      - {model: math, layer_range: [0, 2], parameters: {weight: [0.2, 0.5]}}
      - {model: code, layer_range: [1, 3], parameters: {weight: 1}}
  - sources:
      - {model: code, layer_range: [3, 4], parameters: {weight: [0.2, 0.7]}}
      - {model: math, layer_range: [3, 4], parameters: {weight: [1, 2]}}
"""
SLICES_OF_TASKS = """
slices:
  - sources:
      - {model: base, layer_range: [0, 2]}
      - {model: math, layer_range: [0, 2], parameters: {weight: [0.2, 0.5], density: 0.5}}
  - sources:
      - {model: code, layer_range: [1, 4], parameters: {weight: 0.7, density: [1, 0.1]}}
      - {model: base, layer_range: [1, 4]}
"""
SLICES_OF_TWO = """
slices:
  - sources: [{model: math, layer_range: [2, 4]}, {model: code, layer_range: [1, 3]}]
  - sources: [{model: code, layer_range: [0, 1]}, {model: math, layer_range: [3, 4]}]
"""

RECIPES = {
    "linear": BOTH,
    "linear-not-normalized": BOTH + "parameters: {normalize: false}",
    "linear-gradients": GRADIENTS,
    "linear-filters": FILTERS,
    "linear-slices": SLICES,
    "linear-base-not-listed": BOTH + "base_model: base\nparameters: {weight: 0.2}",
    "slerp": "models: [{model: base}, {model: code}]\nbase_model: base\nparameters: {t: 0.4}",
    "slerp-base-not-listed": "models: [{model: code}]\nbase_model: base\nparameters: {t: 0.9}",
    "slerp-base-last": "models: [{model: code}, {model: base}]\nbase_model: base\n"
    "parameters: {t: [0, 0.3, 1]}",
    "slerp-filters": "models: [{model: base}, {model: code}]\nbase_model: base\nparameters:\n"
    "  t: [{filter: self_attn, value: [0, 0.5, 0.3]}, {filter: mlp, value: [1, 0.1]},\n"
    "  {value: 0.5}]",
    "slerp-slices": SLICES_OF_TWO + "base_model: math\n"
    "parameters: {t: [{filter: layers.2., value: 0.1}, {value: [0.3, 0.8]}]}",
    "task_arithmetic": BOTH + "base_model: base",
    "task_arithmetic-scaled": BOTH + "base_model: base\nparameters: {lambda: 0.7, normalize: true}",
    "task_arithmetic-base-listed": BASE_LISTED + "base_model: base",
    "task_arithmetic-filters": FILTERS + "base_model: base",
    "task_arithmetic-slices": SLICES_OF_TASKS + "base_model: base",
    "ties": BOTH + "base_model: base\nparameters: {density: 0.4}",
    "ties-gradients": GRADIENTS + "base_model: base",
    "ties-filters": FILTERS + "base_model: base\nparameters: {normalize: false, lambda: 1.3}",
    "ties-rescaled": GRADIENTS + "base_model: base\nparameters: {rescale: true}",
    "ties-base-listed": BASE_LISTED + "base_model: base",
    "ties-one-model": ONE + "base_model: base",
    "ties-slices": SLICES_OF_TASKS + "base_model: base",
    "dare_linear-whole": BOTH + "base_model: base\nparameters: {density: 1}",
    "dare_ties-whole": BOTH + "base_model: base\nparameters: {density: 1, normalize: true}",
    "passthrough": "models: [{model: math}]",
    "passthrough-scaled": "models:\n  - model: math\n    parameters:\n"
    "      scale: [{filter: down_proj, value: 0.5}, {value: 1}]",
    "passthrough-slices": "slices:\n"
    "  - sources: [{model: base, layer_range: [0, 2]}]\n"
    "  - sources: [{model: math, layer_range: [1, 3]}]\n"
    "  - sources: [{model: code, layer_range: [3, 4]}]",
}
RANDOM = {
    f"{method}-{name}": f"{ONE}base_model: base\nparameters: {{{given}}}"
    for method in ("dare_linear", "dare_ties")
    for name, given in (("rescaled", "rescale: true"), ("plain", "rescale: false"))
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the family of models and mergekit's result of every recipe, and return their folder."""
    folder = write_family(tmp_path_factory.mktemp("models"))
    every = {**RECIPES, **RANDOM}
    run_mergekit(folder, {name: recipe(name, body) for name, body in every.items()})
    return folder


def recipe(name: str, body: str) -> str:
    return f"merge_method: {name.split('-')[0]}\ndtype: float32\n{body}\n"


def both(models: Path, name: str, out: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the program's result of a recipe, and mergekit's."""
    with working_in(models):
        ours = merge(models, (models / f"{name}.yaml").read_text(), out)
    return tensors_of(ours), tensors_of(models / f"{name}.mergekit")


@pytest.mark.parametrize("name", RECIPES)
def test_same_weights(name: str, models: Path, tmp_path: Path) -> None:
    ours, theirs = both(models, name, tmp_path / "out")
    assert_same_weights(ours, theirs)


@pytest.mark.parametrize("name", RANDOM)
def test_random_methods_drop_as_many_and_scale_alike(
    name: str, models: Path, tmp_path: Path
) -> None:
    base = tensors_of(models / "base")
    changes = [
        torch.cat([(found[tensor] - base[tensor]).flatten() for tensor in base])
        for found in both(models, name, tmp_path / "out")
    ]
    kept = [float((change != 0).float().mean()) for change in changes]
    size = [float(change.abs().mean()) for change in changes]
    assert len(changes[0]) > 10_000
    assert kept[0] == pytest.approx(0.3, abs=0.02)
    assert kept[0] == pytest.approx(kept[1], abs=0.03)
    assert size[0] == pytest.approx(size[1], rel=0.1 if "plain" in name else 0.001)
