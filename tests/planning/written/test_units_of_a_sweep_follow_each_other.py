"""The units of a sweep are computed in the order in which the sources are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_plans import LINEAR, llama, plan, staged, vectors

from resumerge.planning import Plan, Unit, make_plan
from resumerge.planning.stage_results.kept import with_kept
from resumerge.planning.written import unit_order
from resumerge.planning.written.models import models_of
from resumerge.planning.written.sweeps import (
    plan_of_results,
    problems_of_equal_variants,
    problems_of_sweep,
)
from resumerge.planning.written.unit_order import have_same_reads, order_of_units
from resumerge.recipe import parse_recipe
from resumerge.sources.types import numbered
from resumerge.tensors import stored_in

SWEEP = """\
merge_method: ties
base_model: a
models: [{model: b, parameters: {weight: 1, density: 0.5}}]
sweep: {lambda: [1, 2], "models[0].parameters.density": [0.5, 0.2]}
"""


TIES = (
    "merge_method: ties\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n"
    "models: [{model: a}, {model: b}]\n"
)


def swept() -> Plan:
    sources = llama("a"), llama("b")
    recipe = parse_recipe(SWEEP)
    found = [plan(variant.text, *sources) for variant in recipe.variants.values()]
    return plan_of_results(recipe, found)


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
    """Units of one block are computed apart, because their selection is found with the block."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 8)
    found = swept()
    units = [found.units[number] for number in order_of_units(found)]
    assert {unit.blocks > 1 for unit in units} == {True, False}
    for first in range(0, len(units), 4):
        one, two, three, four = units[first : first + 4]
        assert have_same_reads(one, two) == have_same_reads(three, four) == (one.blocks > 1)
        assert not have_same_reads(two, three), "another selection"
        assert first == 0 or not have_same_reads(units[first - 1], one), "another tensor"


def test_where_nothing_is_selected_all_variants_are_computed_together() -> None:
    text = LINEAR + "sweep: {'models[0].parameters.weight': [1, 2], out_dtype: [float16, float32]}"
    recipe, sources = parse_recipe(text), (llama("a"), llama("b"))
    plans = [plan(variant.text, *sources) for variant in recipe.variants.values()]
    found = plan_of_results(recipe, plans)
    one, *others = (found.units[number] for number in order_of_units(found)[:4])
    assert all(have_same_reads(one, other) for other in others)


def unit_of(text: str, number: int = 0) -> Unit:
    """Return a unit of a merge of tensors of several blocks (0) and of one (1)."""
    recipe = parse_recipe(text)
    sources = {
        ref: replace(vectors(ref.name, 1 << 20, 10), ref=ref).numbered("abc".index(ref.name))
        for ref in recipe.models
    }
    return make_plan(recipe, sources, seed=0, shard_size=1 << 30).units[number]


@pytest.mark.parametrize(
    ("one", "other", "number", "expected"),
    [
        (LINEAR, LINEAR, 0, True),
        (LINEAR, LINEAR.replace("weight: 1", "weight: 2"), 0, True),
        (LINEAR, LINEAR + "dtype: bfloat16\n", 0, False),
        (LINEAR, LINEAR + "out_dtype: bfloat16\n", 0, True),
        (LINEAR, LINEAR.replace("model: b", "model: c"), 0, False),
        (LINEAR, LINEAR.replace("linear", "trimmed_mean"), 0, True),
        (LINEAR, "merge_method: passthrough\nmodels: [{model: a}]\n", 0, False),
        (TIES, TIES, 0, True),
        (TIES, TIES.replace("weight: 1", "weight: 2"), 0, True),
        (TIES, TIES.replace("density: 0.5", "density: 0.4"), 0, False),
        (TIES, TIES, 1, False),
        (TIES, TIES.replace("density: 0.5", "density: 1"), 0, False),
    ],
)
def test_what_is_read_once_for_two(one: str, other: str, number: int, *, expected: bool) -> None:
    """Two units share their reads if their tensors are the same, and their statistics, if any.

    Statistics of a tensor of one block are found when the block is computed.
    """
    units = [replace(unit_of(text, number), number=n) for n, text in enumerate((one, other))]
    assert have_same_reads(*units) == expected


def test_methods_of_the_user_get_inputs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's method may change its inputs."""
    one, other = unit_of(LINEAR), unit_of(LINEAR.replace("linear", "trimmed_mean"))
    monkeypatch.setattr(unit_order, "is_users", lambda method: method == "trimmed_mean")
    assert have_same_reads(one, one)
    assert not have_same_reads(one, other) and not have_same_reads(other, one)


def test_blocks_of_other_sizes_are_not_read_at_once() -> None:
    one = unit_of(LINEAR)
    larger = replace(one, block_elements=2 * one.block_elements)
    assert have_same_reads(one, one)
    assert not have_same_reads(one, larger) and not have_same_reads(larger, one)
    assert not have_same_reads(larger, larger), "the blocks of the method are others"


def test_what_is_computed_of_results_of_stages_is_not_read_at_once() -> None:
    """Results of stages are computed while they are read."""
    text = (
        f"name: s\n{LINEAR}---\nmerge_method: linear\nparameters: {{weight: 1}}\n"
        "models: [{model: s}, {model: a}]\n"
    )
    [unit] = staged(text, *(vectors(name, 1 << 20) for name in "ab")).units
    assert not have_same_reads(unit, unit)


def test_those_of_the_same_statistics_follow_each_other_where_all_read_the_same() -> None:
    texts = (TIES, LINEAR, TIES.replace("0.5", "0.4"), TIES)
    units = (replace(unit_of(text), number=n) for n, text in enumerate(texts))
    found = replace(swept(), units=tuple(units))
    assert [*order_of_units(found)] == [0, 3, 1, 2]


def test_those_that_read_all_the_same_come_before_those_that_read_some_of_it() -> None:
    other = LINEAR.replace("model: b", "model: c")
    units = [replace(unit_of(text), number=n) for n, text in enumerate((TIES, other, LINEAR))]
    assert [*order_of_units(replace(swept(), units=tuple(units)))] == [0, 2, 1]


def test_without_a_sweep_the_order_is_the_plan_s() -> None:
    found = next(iter(swept().variants.values()))
    assert [*order_of_units(found)] == [unit.number for unit in found.units]
    units = [unit_of(TIES), unit_of(LINEAR), unit_of(TIES)]
    found = replace(found, units=tuple(replace(each, number=n) for n, each in enumerate(units)))
    assert [*order_of_units(found)] == [0, 1, 2]


def test_what_all_variants_say_is_said_once_and_what_one_says_with_its_name() -> None:
    sources = llama("a"), llama("b")
    recipe = parse_recipe(SWEEP)
    plans = [plan(variant.text, *sources) for variant in recipe.variants.values()]
    both, one, two, some = "of all", "of the first", "of the second", "of two"
    said = [(both, one), (some, both), (both, two, some), (both,)]
    plans = [replace(each, notes=notes, reminders=notes[:2]) for each, notes in zip(plans, said)]
    found = plan_of_results(recipe, plans)
    first, second, third, _ = found.variants
    count, *notes = found.notes
    assert count == f"4 models in one run: {', '.join(found.variants)}"
    assert notes == [
        both,
        f"{first}: {one}",
        f"{second}: {some}",
        f"{third}: {two}",
        f"{third}: {some}",
    ]
    assert found.reminders == (both, one, some, two)
    assert found.recipe is recipe


def test_without_a_sweep_there_is_the_plan_alone() -> None:
    made = plan(LINEAR, llama("a"), llama("b"))
    assert plan_of_results(made.recipe, [made]) is made


def equal_variants(found: Plan, **changed: Plan) -> list[str]:
    variants = {**found.variants, **changed}
    return [p.found or "" for p in problems_of_equal_variants(replace(found, variants=variants))]


def test_variants_that_are_one_model_are_refused() -> None:
    found = swept()
    one, two, _, four = found.variants
    first, second = found.variants[one], found.variants[two]
    assert equal_variants(found) == []
    assert equal_variants(found, **{two: first}) == [f"{one} and {two}"]
    assert equal_variants(found, **{two: first, four: first}) == [
        f"{one} and {two}",
        f"{one} and {four}",
    ]
    assert equal_variants(found, **{four: second}) == [f"{two} and {four}"]
    for other in (
        replace(first, chat_template="{{ messages }}"),
        replace(first, units=tuple(replace(u, dtype="BF16") for u in first.units)),
        replace(first, units=tuple(replace(u, name=f"x.{u.name}") for u in first.units)),
    ):
        assert equal_variants(found, **{two: other}) == []


@pytest.mark.parametrize(
    ("recipe", "at"),
    [(SWEEP, "sweep"), ("average: {checkpoints: [a, b, c], window: 2}", "average")],
)
def test_one_file_has_no_place_for_several_models(recipe: str, at: str) -> None:
    [found] = problems_of_sweep(parse_recipe(recipe), is_file=True)
    assert (found.path, found.expected) == (
        at,
        "a folder as output, with a folder in it for each variant",
    )
    assert [*problems_of_sweep(parse_recipe(recipe), is_file=False)] == []
    assert [*problems_of_sweep(parse_recipe(LINEAR), is_file=True)] == []


def test_each_variant_has_its_folder_units_and_shards() -> None:
    found = swept()
    models = [*models_of(found)]
    assert [model.folder for model in models] == [f"{name}/" for name in found.variants]
    assert [unit.number for unit in found.units] == [n for model in models for n in model.units]
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
    assert not any(model.is_stage for model in others)


def test_windows_that_overlap_follow_each_other() -> None:
    """The first and the last window share no checkpoint, but each one shares one with the next."""
    recipe = parse_recipe("average: {checkpoints: [a, b, c, d, e, f], window: 2}")
    sources = numbered({ref: replace(llama(ref.name), ref=ref) for ref in recipe.source_models})
    plans = [
        make_plan(each, {ref: sources[ref] for ref in each.models}, seed=0, shard_size=1 << 30)
        for each in recipe.variants.values()
    ]
    found = plan_of_results(recipe, plans)
    units = [found.units[number] for number in order_of_units(found)]
    assert len(found.variants) == 5
    for first in range(0, len(units), 5):
        group = units[first : first + 5]
        assert len({unit.name.partition("/")[2] for unit in group}) == 1
        assert [unit.number for unit in group] == sorted(unit.number for unit in group)
