"""The units of a sweep are computed in the order in which the sources are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_plans import LINEAR, llama, plan

from resumerge.planning import Plan, make_plan
from resumerge.planning.stage_results.kept import with_kept
from resumerge.planning.written.models import models_of
from resumerge.planning.written.sweeps import with_variants
from resumerge.planning.written.unit_order import order_of_units, read_alike
from resumerge.recipe import parse_recipe
from resumerge.sources.types import numbered
from resumerge.tensors import stored_in

SWEEP = """\
merge_method: ties
base_model: a
models: [{model: b, parameters: {weight: 1, density: 0.5}}]
sweep: {lambda: [1, 2], "models[0].parameters.density": [0.5, 0.2]}
"""


def swept() -> Plan:
    sources = llama("a"), llama("b")
    recipe = parse_recipe(SWEEP)
    found = [plan(variant.text, *sources) for variant in recipe.variants.values()]
    return with_variants(recipe, found)


def test_those_that_read_the_same_follow_each_other() -> None:
    found = swept()
    order = order_of_units(found)
    assert sorted(order) == [*range(len(found.units))]
    units = [found.units[number] for number in order]
    for first in range(0, len(units), 4):
        group = units[first : first + 4]
        assert len({unit.name.partition("/")[2] for unit in group}) == 1
        assert len({frozenset(stored_in(unit.expression)) for unit in group}) == 1
        densities = [unit.expression.per_operand[0]["density"] for unit in group]
        assert densities == [0.5, 0.5, 0.2, 0.2], "one selection after the other"


def test_those_of_one_selection_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in one block: what is selected is found as it is computed."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK", 8)
    found = swept()
    units = [found.units[number] for number in order_of_units(found)]
    assert {unit.blocks > 1 for unit in units} == {True, False}
    for first in range(0, len(units), 4):
        one, two, three, four = units[first : first + 4]
        assert read_alike(one, two) == read_alike(three, four) == (one.blocks > 1)
        assert not read_alike(two, three), "another selection"
        assert first == 0 or not read_alike(units[first - 1], one), "another tensor"


def test_where_nothing_is_selected_all_variants_are_computed_together() -> None:
    text = LINEAR + "sweep: {'models[0].parameters.weight': [1, 2], out_dtype: [float16, float32]}"
    recipe, sources = parse_recipe(text), (llama("a"), llama("b"))
    plans = [plan(variant.text, *sources) for variant in recipe.variants.values()]
    found = with_variants(recipe, plans)
    one, *others = (found.units[number] for number in order_of_units(found)[:4])
    assert all(read_alike(one, other) for other in others)


def test_without_a_sweep_the_order_is_the_plan_s() -> None:
    found = next(iter(swept().variants.values()))
    assert [*order_of_units(found)] == [unit.index for unit in found.units]


def test_each_variant_has_its_folder_units_and_shards() -> None:
    found = swept()
    models = [*models_of(found)]
    assert [model.folder for model in models] == [f"{name}/" for name in found.variants]
    assert [unit.index for unit in found.units] == [n for model in models for n in model.units]
    for model in models:
        own = [found.units[number] for number in model.units]
        assert [unit.name for unit in own] == [model.folder + u.name for u in model.plan.units]
        [shard] = {unit.shard for unit in own}
        assert found.shards[shard].name == f"{model.folder}model.safetensors"
        assert range(found.shards[shard].first, found.shards[shard].last) == model.units


def test_kept_stages_come_after_the_variants() -> None:
    stage = plan("name: s\nmerge_method: passthrough\nmodels: [{model: a}]\n", llama("a"))
    stage = replace(stage, recipe=replace(stage.recipe, name="s"))
    found = with_kept(replace(swept(), stages=(stage,)), ["s"])
    first, *others = models_of(found)
    assert (first.folder, first.is_stage) == ("stages/s/", True)
    assert [found.units[n].name for n in first.units] == [
        f"stages/s/{unit.name}" for unit in stage.units
    ]
    assert [model.name for model in others] == [*found.variants]


def test_windows_that_overlap_follow_each_other() -> None:
    """The first and the last share no checkpoint, but each one with those between."""
    recipe = parse_recipe("average: {checkpoints: [a, b, c, d, e, f], window: 2}")
    sources = numbered({ref: replace(llama(ref.name), ref=ref) for ref in recipe.source_models})
    plans = [
        make_plan(each, {ref: sources[ref] for ref in each.models}, seed=0, shard_size=1 << 30)
        for each in recipe.variants.values()
    ]
    found = with_variants(recipe, plans)
    units = [found.units[number] for number in order_of_units(found)]
    assert len(found.variants) == 5
    for first in range(0, len(units), 5):
        group = units[first : first + 5]
        assert len({unit.name.partition("/")[2] for unit in group}) == 1
        assert [unit.index for unit in group] == sorted(unit.index for unit in group)
