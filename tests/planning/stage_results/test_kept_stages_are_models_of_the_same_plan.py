"""Promise: a stage that is kept is a model of its own in the plan, after the output's; what cannot
be kept is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import LINEAR, llama, staged

from resumerge.planning import Plan, Unit
from resumerge.planning.plan import Shard
from resumerge.planning.shards import pack
from resumerge.planning.stage_results.kept import names_to_keep, problems_of_kept, with_kept
from resumerge.planning.written.models import models_of, with_models
from resumerge.tensors.target import Target

THREE = (
    f"name: one\n{LINEAR}---\n"
    "name: two\nmerge_method: passthrough\nmodels: [{model: c}]\n---\n"
    "name: three\nmerge_method: linear\nparameters: {weight: 1}\n"
    "models: [{model: one}, {model: c}]\n---\n"
    "merge_method: linear\nparameters: {weight: 1}\n"
    "models: [{model: one}, {model: two}, {model: three}]\n"
)


def in_shards(plan: Plan, size: int) -> Plan:
    """Return the plan packed again, in shards of that many bytes."""
    facts = ("name", "dtype", "shape", "block_elements", "expression", "tensors", "dtypes")
    targets = [Target(**{fact: getattr(u, fact) for fact in facts}) for u in plan.units]
    units, shards = pack(targets, size)
    return replace(plan, units=units, shards=shards)


@pytest.fixture(scope="module")
def plan() -> Plan:
    found = staged(THREE, *(llama(name) for name in "abc"))
    stages = [in_shards(stage, size) for stage, size in zip(found.stages, (150, 1000, 300))]
    return replace(in_shards(found, 200), stages=tuple(stages))


def test_those_that_are_named_or_all() -> None:
    recipe: Any = SimpleNamespace(stages=[SimpleNamespace(name="one"), SimpleNamespace(name="two")])
    assert names_to_keep(recipe, ["two"], every=False) == ["two"]
    assert names_to_keep(recipe, [], every=False) == []
    assert names_to_keep(recipe, ["two"], every=True) == ["one", "two"]


def check_places(units: Iterable[Unit], shards: Iterable[Shard], whole: Plan) -> None:
    """Check that each unit and each shard has the place in the plan that it names."""
    for unit in units:
        assert whole.units[unit.number] is unit
        shard = whole.shards[unit.shard]
        assert shard.first <= unit.number < shard.last
    for shard in shards:
        assert whole.shards[shard.number] is shard
        own = whole.units[shard.first : shard.last]
        assert {unit.shard for unit in own} == {shard.number}
        assert len(shard.header) + sum(unit.nbytes for unit in own) == shard.nbytes


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["one"], ("one",)),
        (["three", "one"], ("one", "three")),
        (["two", "two"], ("two",)),
        (["one", "two", "three"], ("one", "two", "three")),
    ],
)
def test_each_is_there_with_its_units_and_shards(
    plan: Plan, names: list[str], kept: tuple[str, ...]
) -> None:
    """Kept stages have the order of the recipe, whatever the order of the names."""
    whole = with_kept(plan, names)
    assert whole.kept == kept
    assert whole.units[: len(plan.units)] == plan.units
    assert whole.shards[: len(plan.shards)] == plan.shards
    check_places(whole.units, whole.shards, whole)
    models = [*models_of(whole)]
    assert [model.name for model in models] == [*kept, ""], "the output is complete at the end"
    numbers = [*models[-1].units, *(n for model in models[:-1] for n in model.units)]
    assert numbers == [*range(len(whole.units))]
    of_names = {stage.recipe.name: stage for stage in plan.stages}
    for model in models[:-1]:
        assert (model.folder, model.is_stage) == (f"stages/{model.name}/", True)
        assert model.plan is of_names[model.name]
        for number, own in zip(model.units, model.plan.units, strict=True):
            unit = whole.units[number]
            assert unit.name == model.folder + own.name
            assert unit.tensors == {model.folder + n: shape for n, shape in own.tensors.items()}
            assert unit.expression is own.expression
            assert whole.shards[unit.shard].name == (
                model.folder + model.plan.shards[own.shard].name
            )
    output = models[-1]
    assert (output.folder, output.is_stage, output.plan) == (
        "",
        False,
        replace(whole, units=plan.units, shards=plan.shards, kept=()),
    )
    told = [note.split(", too: to ") for note in whole.notes if note not in plan.notes]
    assert told == [[f"the result of {n} is written", f"stages/{n}/"] for n in kept]


def test_tensors_of_several_dtypes_keep_theirs(plan: Plan) -> None:
    first, *others = plan.units
    mixed = replace(plan, units=(replace(first, dtypes={first.name: "U8"}), *others))
    moved = with_models(plan, [("x/", mixed)]).units[len(plan.units)]
    assert moved.dtypes == {f"x/{first.name}": "U8"}


def what(plan: Plan, *names: str, is_file: bool = False) -> list[str]:
    return [problem.what for problem in problems_of_kept(plan, names, is_file=is_file)]


def renamed(plan: Plan, *names: str) -> Plan:
    stages = [
        replace(stage, recipe=replace(stage.recipe, name=name))
        for stage, name in zip(plan.stages, names)
    ]
    return replace(plan, stages=tuple(stages))


def test_what_cannot_be_kept_is_told_at_once(plan: Plan) -> None:
    assert what(plan, "one", "three", "one") == what(plan) == what(plan, is_file=True) == []
    assert what(plan, "four", "one", "five", "four") == [
        "There is no stage 'four' to keep",
        "There is no stage 'five' to keep",
    ]
    assert what(plan, "one", is_file=True) == [
        "Stages cannot be kept beside an output that is one file"
    ]
    odd = renamed(plan, "a/b", "Two", "two")
    begins = "The stage 'a/b' cannot be kept: its name is not a valid folder name"
    assert [each.startswith(begins) for each in what(odd, "Two", "a/b")] == [True]
    assert what(odd, "Two", "two") == ["Stages whose names differ only in case cannot both be kept"]


def test_beside_an_adapter_whose_ranks_are_not_known_none_is_kept(plan: Plan) -> None:
    """Units of an adapter with chosen ranks may have other places when all are committed."""
    of_known: Any = SimpleNamespace(highest={})
    chosen: Any = SimpleNamespace(highest={"q_proj": 8})
    assert what(replace(plan, adapter=of_known), "one") == []
    assert what(replace(plan, adapter=chosen)) == []
    assert what(replace(plan, adapter=chosen), "one") == [
        "Stages cannot be kept beside an adapter whose ranks its changes choose"
    ]
