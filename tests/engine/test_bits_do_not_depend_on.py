"""The bytes of the output are the same whatever the threads, batches, shards or repetitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from merging import merge, shards_of, tensors_of
from tiny_models import LLAMA, write_family

from resumerge.engine.governor import Governor
from resumerge.ledger.home import Home
from resumerge.methods import METHODS
from resumerge.ui.status import status_json

TASKS = """
base_model: base
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: [0.2, 0.8], density: 0.3}}
"""
TWO = "base_model: math\nmodels: [{model: code}]\n"
RECIPES = {
    "linear": TASKS + "parameters: {weight: 0.1}",
    "slerp": TWO + "parameters: {t: [0.2, 0.8]}",
    "nuslerp": TASKS + "parameters: {nuslerp_flatten: false}",
    "multislerp": TASKS,
    "karcher": "models: [{model: math}, {model: code}]",
    "task_arithmetic": TASKS,
    "ties": TASKS + "parameters: {rescale: true}",
    "dare_linear": TASKS,
    "dare_ties": TASKS,
    "della": TASKS,
    "della_linear": TASKS,
    "breadcrumbs": TASKS,
    "breadcrumbs_ties": TASKS,
    "sce": TASKS + "parameters: {select_topk: 0.5}",
    "model_stock": TASKS,
    "nearswap": TWO + "parameters: {t: 0.002}",
    "arcee_fusion": TWO,
    "ram": TASKS,
    "ramplus_tl": TASKS,
    "passthrough": "slices:\n"
    "  - sources: [{model: base, layer_range: [0, 3], parameters: {scale: 0.7}}]\n"
    "  - sources: [{model: math, layer_range: [1, 4]}]\n",
}

every_method = pytest.mark.parametrize("method", RECIPES)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), {**LLAMA, "vocab_size": 3001})


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedding has 49 blocks, a layer's matrices one each."""
    monkeypatch.setattr("resumerge.plan.model.BLOCK", 1000)


def recipe(method: str) -> str:
    return f"merge_method: {method}\ndtype: bfloat16\n{RECIPES[method]}\n"


def test_there_is_a_recipe_for_every_method() -> None:
    assert set(METHODS) == set(RECIPES)


@every_method
def test_threads(method: str, models: Path, tmp_path: Path) -> None:
    outputs = [
        shards_of(merge(models, recipe(method), tmp_path / f"{threads}", threads=threads))
        for threads in (1, 2, 3)
    ]
    assert outputs[0] == outputs[1] == outputs[2]


@every_method
def test_batch_size(
    method: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = []
    for size in (2, 5_000, 128 << 20):  # a block a batch, a few, everything
        monkeypatch.setattr("resumerge.engine.governor.LARGEST_BATCH", size)
        outputs.append(shards_of(merge(models, recipe(method), tmp_path / f"{size}", threads=2)))
    assert outputs[0] == outputs[1] == outputs[2]


@every_method
def test_memory_pressure(
    method: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = shards_of(merge(models, recipe(method), tmp_path / "calm"))
    monkeypatch.setattr("resumerge.engine.governor.SAMPLE_SECONDS", 0.001)
    monkeypatch.setattr("resumerge.engine.governor.SMALLEST_BATCH", 2)
    monkeypatch.setattr("resumerge.engine.governor.LARGEST_BATCH", 100_000)
    monkeypatch.setattr(Governor, "_pressure", lambda self, memory: "a test")
    assert shards_of(merge(models, recipe(method), tmp_path / "pressed")) == calm
    [run] = status_json(Home(tmp_path / "pressed.state"), None)["runs"]
    assert "batch_lowered" in {event["kind"] for event in run["events"]}


@every_method
def test_repetition(method: str, models: Path, tmp_path: Path) -> None:
    outputs = [shards_of(merge(models, recipe(method), tmp_path / f"{i}", seed=7)) for i in (0, 1)]
    assert outputs[0] == outputs[1]


@every_method
def test_shard_size_but_for_the_place_of_the_tensors(
    method: str, models: Path, tmp_path: Path
) -> None:
    whole = tensors_of(merge(models, recipe(method), tmp_path / "whole"))
    parts = tensors_of(merge(models, recipe(method), tmp_path / "parts", shard_size=10_000))
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 3
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)


@pytest.mark.parametrize("method", ["dare_linear", "dare_ties", "della", "della_linear"])
def test_but_the_seed_matters(method: str, models: Path, tmp_path: Path) -> None:
    outputs = [shards_of(merge(models, recipe(method), tmp_path / f"{i}", seed=i)) for i in (0, 1)]
    assert outputs[0] != outputs[1]
