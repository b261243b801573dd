"""The units of a sweep are computed in the order in which the sources are read."""

from __future__ import annotations

from dataclasses import replace

from made_up_plans import llama, plan

from resumerge.planning import Plan, make_plan
from resumerge.planning.stage_results.kept import with_kept
from resumerge.planning.written.models import models_of
from resumerge.planning.written.sweeps import with_variants
from resumerge.planning.written.unit_order import order_of_units
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
