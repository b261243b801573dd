"""Promise: the bytes of the output do not depend on threads, batches, shards or repetitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from merging import merge, shards_of, tensors_of
from tiny_models import LLAMA, write_family
from waiting import wait_until

from resumerge.documents.status import status_json
from resumerge.engine.execute.scheduler import Scheduler
from resumerge.engine.resources.governor import Governor
from resumerge.ledger.run_store import RunStore
from resumerge.methods import METHODS

TASKS = """
base_model: base
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: [0.2, 0.8], density: 0.3}}
"""
WITHOUT_BASE = TASKS.replace("base_model: base\n", "")
TWO = "base_model: math\nmodels: [{model: code}]\n"
SPECIAL = {
    "ties": TASKS + "parameters: {rescale: true}",
    "nuslerp": TASKS + "parameters: {nuslerp_flatten: false}",
    "sce": TASKS + "parameters: {select_topk: 0.5}",
    "nearswap": TWO + "parameters: {t: 0.002}",
    "passthrough": "slices:\n"
    "  - sources: [{model: base, layer_range: [0, 2], parameters: {scale: 0.7}}]\n"
    "  - sources: [{model: math, layer_range: [1, 2]}]\n",
}

First = Callable[[str], Path]
every_method = pytest.mark.parametrize("method", METHODS)
OF_EACH_KIND = ("linear", "slerp", "model_stock", "dare_ties", "della", "passthrough")
"""Methods with and without reductions, random masks and slices."""


@pytest.fixture
def of_each_kind(method: str, soak: bool) -> None:
    if method not in OF_EACH_KIND and not soak:
        pytest.skip("a method of each kind is enough for every day: the others with --soak")


def recipe(name: str) -> str:
    """Return a recipe that merges two models by a method, with their base if it takes one."""
    method = METHODS[name]
    body = TASKS if method.base != "none" else WITHOUT_BASE
    if method.base == "required" and method.most == 2:
        body = TWO
    required = [p.name for p in method.parameters if p.required and not p.per_model]
    body += "parameters: {" + ", ".join(f"{parameter}: 0.4" for parameter in required) + "}"
    return f"merge_method: {name}\ndtype: bfloat16\n{SPECIAL.get(name, body)}\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(
        tmp_path_factory.mktemp("models"), {**LLAMA, "vocab_size": 1501, "num_hidden_layers": 2}
    )


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that the embedding has 25, and a layer's matrices one each."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 1000)


@pytest.fixture(scope="module")
def first(models: Path, tmp_path_factory: pytest.TempPathFactory) -> First:
    """Return a function that merges by a method once, with two threads and default options."""
    folder = tmp_path_factory.mktemp("first")

    @cache
    def make(method: str) -> Path:
        return merge(models, recipe(method), folder / method, threads=2)

    return make


LARGEST = "resumerge.engine.resources.governor.LARGEST_UNCOMMITTED_LIMIT"
A_BLOCK, A_FEW = 2, 5_000
"""Uncommitted limits in bytes, for `LARGEST`."""


@every_method
def test_threads_and_the_uncommitted_limit(
    method: str,
    models: Path,
    first: First,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    soak: bool,
) -> None:
    """The test tries all pairs of threads and limits with --soak, and repeats the first merge."""
    expected = shards_of(first(method))
    pairs = [*product((1, 2, 3), (A_BLOCK, A_FEW)), (2, None)]
    for threads, limit in pairs if soak else [(3, A_BLOCK)]:
        with monkeypatch.context() as patched:
            if limit is not None:
                patched.setattr(LARGEST, limit)
            out = merge(models, recipe(method), tmp_path / f"{threads} {limit}", threads=threads)
        assert shards_of(out) == expected, (threads, limit)


@every_method
def test_what_is_computed_from_the_same_before(
    method: str, models: Path, first: First, tmp_path: Path
) -> None:
    """A sweep computes several outputs from blocks that are read once: no method changes them."""
    places = "sweep: {out_dtype: [float32, bfloat16]}\n"
    out = merge(models, recipe(method) + places, tmp_path / "out", threads=2)
    assert shards_of(out / "out_dtype-bfloat16") == shards_of(first(method))


@every_method
@pytest.mark.usefixtures("of_each_kind")
def test_memory_pressure(
    method: str, models: Path, first: First, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = shards_of(first(method))
    monkeypatch.setattr("resumerge.engine.resources.governor.SAMPLE_SECONDS", 0.001)
    monkeypatch.setattr("resumerge.engine.resources.governor.SMALLEST_UNCOMMITTED_LIMIT", 2)
    monkeypatch.setattr("resumerge.engine.resources.governor.LARGEST_UNCOMMITTED_LIMIT", 100_000)
    monkeypatch.setattr(Governor, "_pressure", lambda self: "a test")
    run = Scheduler.run

    def under_pressure(scheduler: Scheduler) -> None:
        wait_until(lambda: scheduler._governor.uncommitted_limit < 100_000)
        run(scheduler)

    monkeypatch.setattr(Scheduler, "run", under_pressure)
    assert shards_of(merge(models, recipe(method), tmp_path / "pressed")) == calm
    [run] = status_json(RunStore(tmp_path / "pressed.state"), None)["runs"]
    assert "batch_lowered" in {event["kind"] for event in run["events"]}


@every_method
@pytest.mark.usefixtures("of_each_kind")
def test_shard_size_but_for_the_place_of_the_tensors(
    method: str, models: Path, first: First, tmp_path: Path
) -> None:
    whole = tensors_of(first(method))
    parts = tensors_of(merge(models, recipe(method), tmp_path / "parts", shard_size=10_000))
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 3
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)


@pytest.mark.parametrize("method", ["dare_linear", "dare_ties", "della", "della_linear"])
def test_but_the_seed_matters(method: str, models: Path, tmp_path: Path) -> None:
    outputs = [shards_of(merge(models, recipe(method), tmp_path / f"{i}", seed=i)) for i in (0, 1)]
    assert outputs[0] != outputs[1]
