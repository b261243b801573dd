"""Recipes of the other methods give the weights of mergekit 0.1.5."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from merging import merge, tensors_of, working_in
from tiny_models import write_family

pytestmark = pytest.mark.skipif(MERGEKIT is None, reason="mergekit-yaml is not installed")


def two(first: str = "", second: str = "") -> str:
    return (
        "models:\n"
        f"  - {{model: math, parameters: {{{first}}}}}\n"
        f"  - {{model: code, parameters: {{{second}}}}}\n"
    )


WEIGHTS = two("weight: 0.3", "weight: [0.9, 0.2]")
CRUMBS = two("weight: 0.3, density: 0.4, gamma: 0.1", "weight: 0.8, density: [0.2, 0.9]")
ONE = "models: [{model: math}]\n"
BASE = "base_model: base\n"

RECIPES = {
    "nuslerp": WEIGHTS,
    "nuslerp-tasks": WEIGHTS + BASE,
    "nuslerp-rows": WEIGHTS + "parameters: {nuslerp_flatten: false}",
    "nuslerp-columns": WEIGHTS + "parameters: {nuslerp_flatten: false, nuslerp_row_wise: true}",
    "nuslerp-tasks_by_row": WEIGHTS + BASE + "parameters: {nuslerp_flatten: false}",
    "nuslerp-tasks_by_column": WEIGHTS
    + BASE
    + "parameters: {nuslerp_flatten: false, nuslerp_row_wise: true}",
    "multislerp": WEIGHTS,
    "multislerp-tasks": WEIGHTS + BASE,
    "multislerp-not_normalized": WEIGHTS + BASE + "parameters: {normalize_weights: false}",
    "karcher": two(),
    "karcher-with_base": two() + BASE + "parameters: {max_iter: 3, tol: 0.001}",
    "breadcrumbs": CRUMBS + BASE,
    "breadcrumbs-rescaled": CRUMBS + BASE + "parameters: {rescale: true, lambda: 0.7}",
    "breadcrumbs_ties": CRUMBS + BASE,
    "breadcrumbs_ties-normalized": CRUMBS + BASE + "parameters: {normalize: true, gamma: 0.3}",
    "della-whole": two("weight: 0.3, density: 1", "weight: -0.2, density: 1") + BASE,
    "della_linear-whole": two("weight: 0.3, density: 1", "weight: 0.2, density: 1") + BASE,
    "sce": two() + BASE,
    "sce-selected": two() + BASE + "parameters: {select_topk: 0.3}",
    "model_stock": two() + BASE,
    "model_stock-filter_wise": two() + BASE + "parameters: {filter_wise: true}",
    "nearswap": ONE + BASE + "parameters: {t: 0.003}",
    "nearswap-gradient": ONE + BASE + "parameters: {t: [0, 0.01]}",
    "arcee_fusion": ONE + BASE,
    "ram": two() + BASE + "parameters: {epsilon: 0.003}",
    "ram-default": two() + BASE,
    "ramplus_tl": two() + BASE + "parameters: {epsilon: 0.003, r: 0.5, alpha: 0.7}",
}
FLOAT32 = {name: f"{body}\ndtype: float32" for name, body in RECIPES.items()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the family of models and mergekit's result of every recipe, and return their folder."""
    folder = write_family(tmp_path_factory.mktemp("models"))
    run_mergekit(folder, {name: _recipe(name, text) for name, text in FLOAT32.items()})
    return folder


def _recipe(name: str, body: str) -> str:
    return f"merge_method: {name.split('-')[0]}\n{body}\n"


def _ours(folder: Path, text: str, out: Path) -> dict[str, torch.Tensor]:
    with working_in(folder):
        return tensors_of(merge(folder, text, out))


@pytest.mark.parametrize("name", RECIPES)
def test_same_weights(name: str, models: Path, tmp_path: Path) -> None:
    ours = _ours(models, _recipe(name, FLOAT32[name]), tmp_path / "out")
    assert_same_weights(ours, tensors_of(models / f"{name}.mergekit"))
