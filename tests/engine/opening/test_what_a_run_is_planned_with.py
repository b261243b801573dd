"""Promise: an option that decides the plan is stored with it, and planning again reads it back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from merging import merge, working_in
from safetensors.numpy import save_file

from resumerge.engine.context import RunContext
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.opening.plan_rows import shard_rows, unit_rows
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Kept, Options, declared
from resumerge.output_path import OutputPath
from resumerge.planning import Plan, fingerprint_parts, read_recipe
from resumerge.storage import Storage

GIVEN: dict[str, Any] = {
    "seed": 7,
    "shard_size": 5000,
    "tensor_union": True,
    "tensor_intersection": True,
    "keep": ("first",),
    "intermediate_dir": Path("there"),
}
"""A value of each option that decides the plan, which changes the plan of `RECIPE`."""

RECIPE = """
name: first
merge_method: linear
models: [{model: a, parameters: {weight: 0.5}}, {model: b, parameters: {weight: 0.5}}]
---
merge_method: dare_linear
base_model: a
models: [{model: first, parameters: {weight: 0.5, density: 0.5}}]
"""


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Path]:
    """Yield the working folder, with two checkpoints without config.json."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        tensors = {key: np.ones((50, 20), np.float32) for key in ("x", "y")}
        save_file(tensors, tmp_path / name / "model.safetensors")
    with working_in(tmp_path):
        yield tmp_path


def planned(models: Path, created_with: Mapping[str, Any], **options: Any) -> Plan:
    given = Options(state_dir=models / "state", **options)
    context = RunContext(given, Reporter(), Storage(), StopRequest(), RunStore(models / "state"))
    (models / "recipe.yaml").write_text(RECIPE)
    recipe = read_recipe(models / "recipe.yaml")
    plan, _ = pinned_plan(context, recipe, OutputPath(models / "out"), created_with=created_with)
    return plan


def content(plan: Plan) -> dict[str, Any]:
    """Return what decides the bytes and the files of the output."""
    files = {"units": [*unit_rows(plan)], "shards": [*shard_rows(plan)]}
    return {**files, "parts": fingerprint_parts(plan)}


def test_these_decide_the_plan() -> None:
    planned = {option.name for option in declared() if option.kept is Kept.PLANNED}
    assert planned == GIVEN.keys(), "a new one needs a value in GIVEN"


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_run_was_planned_with_is_stored_and_read_back(name: str, models: Path) -> None:
    given = {name: GIVEN[name]}
    plan, usual = planned(models, {}, **given), planned(models, {})
    merge(models, RECIPE, models / "out", state_dir=models / "state", **given)
    [ledger] = (models / "state").glob("*/ledger.db")
    with closing(Ledger(ledger, read_only=True)) as opened:
        kept = json.loads(opened.run()["options"])
    value = GIVEN[name].absolute() if isinstance(GIVEN[name], Path) else GIVEN[name]
    assert json.dumps(kept[name]) == json.dumps(value, default=str), "it is stored"
    assert content(planned(models, kept)) == content(plan) != content(usual), "it is read back"
