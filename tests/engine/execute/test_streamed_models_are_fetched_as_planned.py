"""Promise: a streamed model gives the same bytes, and `plan` predicts the bytes of its requests."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from merging import merge, shards_of, working_in
from small_batches import use_small_batches
from stage_recipes import RECIPES, write_models
from streamed_models import serve_local_models

from resumerge.engine.lifecycle.session import Session
from resumerge.methods import METHODS
from resumerge.options import Options
from resumerge.planning import estimate
from resumerge.planning.estimates.memory import CLIENT_RSS
from resumerge.recipe import load_recipe, parse_recipe
from resumerge.remote.range_reader import AHEAD_BYTES

ONE_MODEL = {"passthrough"}
TWO_MODELS = {"slerp", "nearswap", "arcee_fusion"}
READ_IN_ANOTHER_WAY = (
    *("linear of linear", "used twice", "five", "ties of ties", "a stage as the base"),
    *("slerp of stages", "model stock", "sce", "slices of slices", "a layer that is computed"),
    *("in bfloat16", "a union in a stage", "a union of stages", "the tokenizer of a stage"),
)
"""Recipes of stages for each way to read: again, in nested reductions, in slices and others."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


def recipe_of(method: str) -> str:
    """Return a recipe of the method with parameters that make it read all that it may read."""
    declared = METHODS[method]
    others = ["math"] if method in TWO_MODELS | ONE_MODEL else ["math", "code"]
    required = {p.name: 0.5 for p in declared.parameters if p.required and not p.per_model}
    given = {p.name: 0.5 for p in declared.parameters if p.per_model and p.name == "density"}
    given |= {p.name: 0.5 for p in declared.parameters if p.required and p.per_model}
    if method == "sce":
        required["select_topk"] = 0.5
    document: dict[str, Any] = {
        "merge_method": method,
        "models": [{"model": name, "parameters": given} for name in others],
        "parameters": required,
    }
    if declared.base != "none" or method in ("slerp", "nearswap"):
        document["base_model"] = "base"
        if method in TWO_MODELS:
            document["models"].insert(0, {"model": "base"})
    return json.dumps(document)


def fetched(
    models: Path, recipe: str, folder: Path, patch: pytest.MonkeyPatch, **options: Any
) -> tuple[Counter[str], Counter[str]]:
    """Merge local models, stream them, and return the bytes sent and planned, by path."""
    use_small_batches(patch, 1 << 20)
    calm = merge(models, recipe, folder / "calm", **options)
    sent = serve_local_models(patch)
    out = merge(models, recipe, folder / "out", stream=True, **options)
    assert shards_of(out) == shards_of(calm)
    with working_in(models):
        plan = Session(Options(stream=True, **options)).plan(load_recipe(out.with_suffix(".yaml")))
    planned: Counter[str] = Counter()
    for (number, name), nbytes in estimate(plan).streamed.items():
        planned[str(plan.sources[number].path(name))] += nbytes
    return sent, planned


@pytest.mark.parametrize("method", METHODS)
def test_every_method(
    method: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, planned = fetched(models, recipe_of(method), tmp_path, monkeypatch, threads=2)
    assert sent == planned and len(sent) > 0


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_of_stages(
    name: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    """The recipes have vocabularies, slices and adapters; each pass computes the stages again.

    A unit fetches a little less if another one has requested the same bytes before.
    """
    if name not in READ_IN_ANOTHER_WAY and not soak:
        pytest.skip("a recipe for each way to read is enough for every day: all with --soak")
    sent, planned = fetched(models, RECIPES[name], tmp_path, monkeypatch, materialize="never")
    assert dict(sent) == pytest.approx(dict(planned), rel=0.02)


@pytest.mark.parametrize("name", ["ties of ties", "slerp of stages", "a union in a stage"])
def test_stages_that_are_spilled(
    name: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, planned = fetched(models, RECIPES[name], tmp_path, monkeypatch, materialize="always")
    assert dict(sent) == pytest.approx(dict(planned), rel=0.02)


def test_memory_is_planned_for_what_is_read_ahead(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_local_models(monkeypatch)
    monkeypatch.setitem(CLIENT_RSS, "local", 7)
    recipe = parse_recipe(recipe_of("linear"))
    with working_in(models):
        plans = [Session(Options(stream=stream)).plan(recipe) for stream in (False, True)]
    stored, streamed = (estimate(plan).memory.need(2) for plan in plans)
    assert streamed.process - stored.process == 7
    assert streamed.peak_rss - stored.peak_rss == 7 + AHEAD_BYTES
