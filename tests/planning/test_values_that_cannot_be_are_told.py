"""Promise: an impossible value is reported once, with its place; an odd one is noted."""

from __future__ import annotations

import pytest
from made_up_plans import expressions, llama, plan

from resumerge.errors import InputError, Problem
from resumerge.methods import METHODS, Parameter
from resumerge.methods.averages.linear import Linear
from resumerge.planning.check_recipe import check_recipe
from resumerge.planning.parameters import check_parameters
from resumerge.recipe import parse_recipe

TWO = "models: [{model: a}, {model: b}]\n"
LINEAR = "merge_method: linear\n"
TIES = "merge_method: ties\nbase_model: a\nmodels: [{model: b}]\n"
NORM = "model.norm.weight"


def checked(recipe: str) -> tuple[list[Problem], list[str]]:
    parsed = parse_recipe(recipe)
    return check_parameters(parsed, METHODS.get(parsed.merge_method))


def refused(recipe: str, count: int = 2) -> list[Problem]:
    with pytest.raises(InputError) as found:
        plan(recipe, *(llama(name) for name in "abc"[:count]))
    return list(found.value.problems)


@pytest.mark.parametrize(
    ("recipe", "fits"),
    [
        (TIES + "parameters: {weight: 1, density: 0}", True),
        (TIES + "parameters: {weight: 1, density: 1}", True),
        (TIES + "parameters: {weight: 1, density: -0.01}", False),
        (TIES + "parameters: {weight: 1, density: 1.01}", True),  # counts as 1
        (TIES + "parameters: {weight: 1, density: 4.0e+38}", False),
        (TIES + "parameters: {weight: -3.0e+38, density: 1}", True),
        (TIES + "parameters: {weight: 3.5e+38, density: 1}", False),
        (TIES + "parameters: {weight: one, density: 1}", False),
        (TIES + "parameters: {weight: 1, normalize: 'on'}", True),
        (TIES + "parameters: {weight: 1, normalize: perhaps}", False),
        (TIES + "parameters: {weight: 1, normalize: 2}", False),
        (f"merge_method: trimmed_mean\n{TWO}parameters: {{trim: 0.5}}", True),
        (f"merge_method: trimmed_mean\n{TWO}parameters: {{trim: 0.51}}", False),
        (f"merge_method: karcher\n{TWO}parameters: {{max_iter: 0}}", True),
        (f"merge_method: karcher\n{TWO}parameters: {{max_iter: -1}}", False),
    ],
)
def test_values_lie_between_their_limits(recipe: str, fits: bool) -> None:
    problems, _ = checked(recipe)
    assert (problems == []) is fits


def test_every_written_value_is_checked_where_it_stands() -> None:
    recipe = (
        "merge_method: ties\nbase_model: a\nmodels:\n"
        "  - model: b\n    parameters:\n      weight: 1\n      density:\n"
        "        - {filter: mlp, value: [0.5, -1.0]}\n        - value: -2\n"
    )
    problems, _ = checked(recipe)
    assert [(p.path, p.found) for p in problems] == [
        ("models[0].parameters.density[0].value[1]", "-1.0"),
        ("models[0].parameters.density[1].value", "-2"),
    ]


def test_what_is_wanted_is_told_by_its_kind_and_limits() -> None:
    def wanted(parameter: str, method: str) -> str:
        problems, _ = checked(f"merge_method: {method}\n{TWO}parameters: {{{parameter}: x}}")
        [problem] = problems
        assert problem.fix == f"Write {problem.expected.partition(' (')[0]}"
        return problem.expected.partition(" (")[0]

    assert wanted("normalize", "linear") == "true or false"
    assert wanted("weight", "linear") == "a number that float32 can hold"
    assert wanted("max_iter", "karcher") == "a whole number of at least 0"
    assert wanted("tol", "karcher") == "a number of at least 0"
    assert wanted("trim", "trimmed_mean") == "a number from 0 to 0.5"


def test_odd_values_are_noted() -> None:
    _, notes = checked(TIES + "parameters: {weight: true, density: 1.5, normalize: 'yes'}")
    assert notes == [
        "parameters.weight is true: it counts as 1",
        "parameters.density is 1.5: it counts as 1, the largest value",
        "parameters.normalize is the text 'yes': it counts as true",
    ]
    _, notes = checked(TIES + "parameters: {weight: false, density: 1, normalize: true}")
    assert notes == ["parameters.weight is false: it counts as 0"]


def test_names_are_checked() -> None:
    problems, notes = checked(LINEAR + TWO + "parameters: {wieght: 1, density: 1, comment: 1}")
    assert [(p.what, p.path) for p in problems] == [
        ("Unknown parameter 'wieght'", "parameters.wieght")
    ]
    assert notes == [
        "linear has no parameter 'density'; it is ignored (parameters)",
        "linear has no parameter 'comment'; it is ignored (parameters)",
    ]


def test_a_parameter_beside_the_parameters_is_told_and_another_key_is_noted() -> None:
    recipe = LINEAR + "parameters: {weight: 1}\nmodels:\n  - {model: a, density: 1, remark: x}\n"
    problems, notes = checked(recipe)
    assert [p.what for p in problems] == ["The parameter 'density' is not below 'parameters:'"]
    assert problems[0].path == "models[0].density"
    assert notes == ["the key 'remark' has no effect, as in mergekit (models[0].remark)"]


# What is missing


def test_a_base_that_is_merged_like_any_model_is_told_where_its_parameter_can_stand() -> None:
    recipe = LINEAR + "models:\n  - {model: a, parameters: {weight: 1}}\nbase_model: b\n"
    [found] = refused(recipe)
    assert "List b in `models:` with `weight:`; or delete `base_model:`" in found.fix


def test_what_is_missing_is_told_once_for_each_model() -> None:
    found = refused(LINEAR + TWO)
    assert [(p.what, p.path) for p in found] == [
        (f"The parameter 'weight' of linear is missing for {name}", f"models[{n}].parameters")
        for n, name in enumerate("ab")
    ]
    [found_once] = refused("merge_method: slerp\nbase_model: a\n" + TWO)
    assert (found_once.what, found_once.path) == (
        "The parameter 't' of slerp is missing",
        "parameters",
    )


class Demanding(Linear):
    """A method of a user that needs two parameters."""

    name = "demanding"
    parameters = (*Linear.parameters, Parameter("share", "of it", per_model=True))


def test_two_that_are_missing_in_one_place_are_two_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS._methods, "demanding", Demanding())
    found = refused("merge_method: demanding\nmodels: [{model: a}]\n", 1)
    assert [p.what for p in found] == [
        f"The parameter '{name}' of demanding is missing for a" for name in ("weight", "share")
    ]


def test_an_empty_list_is_no_value_for_what_has_a_default() -> None:
    recipe = (
        "merge_method: della\nbase_model: a\nmodels:\n"
        "  - {model: b, parameters: {weight: [], density: []}}\n"
    )
    assert [p.path for p in refused(recipe)] == ["models[0].parameters.weight"]


def test_an_empty_list_gives_way_to_an_outer_scope_or_is_told() -> None:
    recipe = LINEAR + "{}models:\n  - {{model: a, parameters: {{weight: []}}}}\n"
    [problem] = refused(recipe.format(""), 1)
    assert problem.what == "The parameter 'weight' is an empty list for a"
    assert problem.path == "models[0].parameters.weight"
    outer = expressions(plan(recipe.format("parameters: {weight: 3}\n"), llama("a")))
    assert outer[NORM].operands[0].params == {"weight": 3}
    filtered = LINEAR + "models:\n  - {model: a, parameters: {weight: [{filter: mlp, value: 0}]}}\n"
    [problem] = refused(filtered, 1)
    assert problem.what == "The parameter 'weight' of linear is missing for a"


def test_a_fraction_for_a_count_is_told_where_it_is_written() -> None:
    recipe = "merge_method: karcher\nmodules:\n  default:\n    parameters: {max_iter: 2.5}\n    "
    [problem] = refused(recipe + TWO)
    assert problem.path == "modules.default.parameters.max_iter"
    assert problem.what == "The parameter 'max_iter' is not a whole number"
    assert problem.found.startswith("2.5 for tensor ")
    sliced = (
        "merge_method: karcher\nparameters: {max_iter: 1}\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 1]}]\n    parameters: {max_iter: 1.5}\n"
    )
    [problem] = refused(sliced, 1)
    assert problem.path == "slices[0].parameters.max_iter"


def test_problems_are_told_in_the_order_of_their_lines() -> None:
    recipe = (
        "merge_method: linear\nmodels:\n"
        "  - model: a\n    parameters: {weight: x}\n  - model: b\n    parameters: {weight: y}\n"
        "parameters: {wieght: 1}\n"
    )
    lines = [p.line for p in refused(recipe)]
    assert lines == sorted(lines, key=lambda line: (line is None, line or 0)) and len(lines) == 3


def test_a_base_whose_layers_are_not_known_is_told_from_the_recipe_alone() -> None:
    recipe = (
        "merge_method: task_arithmetic\nbase_model: c\nparameters: {weight: 1}\nslices:\n"
        "  - sources:\n      - {model: a, layer_range: [0, 1]}\n"
        "      - {model: b, layer_range: [1, 2]}\n"
    )
    found = check_recipe(parse_recipe(recipe))
    assert [p.what for p in found] == [
        "The recipe does not say which layers of the base model this slice uses"
    ]
    assert check_recipe(parse_recipe(recipe.replace("[1, 2]", "[0, 1]"))) == []


def test_a_filter_that_matches_no_tensor_is_noted_with_names_like_it() -> None:
    recipe = (
        f"merge_method: linear\n{TWO}parameters:\n  weight:\n"
        "    - {filter: mpl, value: 0.5}\n    - {filter: self_attn, value: 0.4}\n    - {value: 1}\n"
    )
    [note] = [n for n in plan(recipe, llama("a"), llama("b")).notes if "filter" in n]
    assert note.startswith("the filter 'mpl' matches no tensor, so its value is not used")
    assert "(parameters.weight)" in note and "'mlp'" in note
