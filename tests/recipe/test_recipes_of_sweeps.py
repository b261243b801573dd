"""A sweep is so many recipes, each with a name; every mistake in it is a problem at its line."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from resumerge.recipe import Recipe, parse_recipe
from resumerge.recipe.load import InvalidRecipe
from resumerge.recipe.normalized import normalized
from resumerge.recipe.types import Conditional

BASE = """\
merge_method: ties
base_model: org/base
parameters: {lambda: 1}
models:
  - model: org/a
    parameters: {weight: 1, density: 0.5}
  - model: org/b
sweep:
"""
LINE = BASE.count("\n") + 1
"""The first line below ``sweep``."""


def sweep(text: str, before: str = BASE) -> Recipe:
    return parse_recipe(before + text, "r.yaml")


def weights(recipe: Recipe) -> list[object]:
    return [
        variant.slices[0].inputs[1].parameters.get("weight") for variant in recipe.variants.values()
    ]


def test_a_list_for_each_place_is_a_grid() -> None:
    found = sweep("  lambda: [0.5, 1]\n  models[1].parameters.weight: [0.1, [0, 1]]\n")
    names = ["lambda-0.5_weight-0.1", "lambda-0.5_weight-0-1", "lambda-1_weight-0.1"]
    assert [*found.variants] == [*names, "lambda-1_weight-0-1"]
    assert weights(found) == [0.1, (0.0, 1.0)] * 2
    assert [v.parameters["lambda"] for v in found.variants.values()] == [0.5, 0.5, 1, 1]
    assert found.documents == tuple(found.variants.values())


def test_names_of_two_places_with_one_key_tell_them_apart() -> None:
    found = sweep("  models[0].parameters.weight: [1]\n  models[1].parameters.weight: [2]\n")
    assert [*found.variants] == ["models-0-weight-1_models-1-weight-2"]


def test_filters_and_signs_make_names_of_folders() -> None:
    values = "[-1, 1e-05, [{filter: self_attn/x, value: 0.1}, {value: 2}], true]"
    found = sweep(f"  lambda: {values}\n")
    names = ["lambda--1", "lambda-1e-05", "lambda-self_attn-x-0.1-2", "lambda-true"]
    assert [*found.variants] == names
    filtered = found.variants[names[2]].parameters["lambda"]
    assert filtered == (Conditional("self_attn/x", 0.1), Conditional(None, 2))


def test_variants_are_named_one_by_one() -> None:
    text = "  variants:\n    plain: {}\n    other: {merge_method: dare_ties, dtype: float16}\n"
    found = sweep(text)
    assert [(n, v.merge_method, v.dtype) for n, v in found.variants.items()] == [
        ("plain", "ties", None),
        ("other", "dare_ties", "float16"),
    ]


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=5
    ).filter(lambda values: len({str(value).lower() for value in values}) == len(values))
)
def test_the_text_of_a_variant_is_its_recipe(values: list[float]) -> None:
    """The text has the variant's values in place of the sweep, and the recipe's other settings."""
    found = sweep(f"  models[1].parameters.weight: {values}\n")
    assert weights(found) == values
    for variant in found.variants.values():
        assert "sweep" not in yaml.safe_load(variant.text)
        assert normalized(parse_recipe(variant.text)) == normalized(variant)


def test_the_result_of_stages_may_have_a_sweep() -> None:
    stage = "name: first\nmerge_method: linear\nmodels: [{model: org/x}, {model: org/y}]\n---\n"
    result = BASE.replace("org/b\n", "first\n")
    found = sweep("  lambda: [1, 2]\n", stage + result)
    assert [document.name for document in found.documents] == ["first", "", ""]
    assert [ref.text for ref in found.source_models] == ["org/x", "org/y", "org/a", "org/base"]
    assert parse_recipe(found.variants["lambda-2"].text).stages[0].merge_method == "linear"
    with pytest.raises(InvalidRecipe, match="A stage makes several models"):
        parse_recipe(stage.replace("---", "sweep: {t: [1, 2]}\n---") + result.replace("sweep:", ""))
    both = stage.replace("---", "sweep: {t: [1, 2]}\n---") + result + "  lambda: [1, 2]\n"
    with pytest.raises(InvalidRecipe, match="Two documents make several models"):
        parse_recipe(both)


def test_the_order_is_a_part_of_what_is_compared_when_a_run_goes_on() -> None:
    """The ledger's units and shards are numbered in the order of the variants."""
    one, other = sweep("  lambda: [1, 2]\n"), sweep("  lambda: [2, 1]\n")
    assert normalized(one) != normalized(other)
    assert normalized(one) == normalized(sweep("  lambda: [1.0, 2]  # a comment\n")) | {
        "sweep": [
            {**variant, "name": name}
            for variant, name in zip(normalized(one)["sweep"], ("lambda-1", "lambda-2"))
        ]
    }


FAULTS = {
    "nothing": ("  # no more\n", LINE - 1, "sweep", "names no values"),
    "no list": ("  lambda: 0.5\n", LINE, "sweep.lambda", "no list of values for lambda"),
    "an empty list": ("  lambda: []\n", LINE, "sweep.lambda", "no list of values for lambda"),
    "a value that is none": (
        "  lambda:\n    - 1\n    - null\n",
        LINE + 2,
        "parameters.lambda",
        "not a value for a parameter",
    ),
    "an entry that is not there": (
        "  models[2].parameters.weight: [1, 2]\n",
        LINE,
        "sweep.models[2].parameters.weight",
        "does not have: models[2].parameters.weight",
    ),
    "without parameters": (
        "  models[1].weight: [1, 2]\n",
        LINE,
        "sweep.models[1].weight",
        "does not have: models[1].weight",
    ),
    "a misspelt key": (
        "  model[1].parameters.weight: [1]\n",
        LINE,
        None,
        "does not have: model[1]",
    ),
    "a mapping": ("  models[0].parameters: [{weight: 1}]\n", LINE, None, "more than one value"),
    "a list of models": ("  models: [[{model: org/x}]]\n", LINE, None, "more than one value"),
    "no path": ("  models[x]: [1]\n", LINE, None, "no place of a recipe"),
    "a number as a path": ("  3: [1]\n", LINE, None, "no place of a recipe"),
    "the same value twice": ("  lambda: [1, 2, 1]\n", LINE - 1, "sweep", "the same name"),
    "names that some disks take for one": (
        "  variants: {a: {lambda: 1}, A: {lambda: 2}}\n",
        LINE,
        "sweep.variants.A",
        "upper and lower case",
    ),
    "too many": (
        f"  lambda: {[*range(11)]}\n  models[1].parameters.weight: {[*range(10)]}\n",
        LINE - 1,
        "sweep",
        "110 variants",
    ),
    "too many, named": (
        f"  variants: {{{', '.join(f'v{n}: {{lambda: {n}}}' for n in range(101))}}}\n",
        LINE - 1,
        "sweep",
        "101 variants",
    ),
    "a name that is too long": (
        f"  lambda: [{[*range(50)]}]\n",
        LINE - 1,
        "sweep",
        "too long for a folder",
    ),
    "lists beside variants": (
        "  variants: {a: {lambda: 1}}\n  lambda: [1, 2]\n",
        LINE + 1,
        "sweep.lambda",
        "either lists of values, or variants",
    ),
    "a list of variants": ("  variants: [{lambda: 1}]\n", LINE, "sweep.variants", "no mapping"),
    "a name that is no folder": (
        "  variants:\n    a/b: {lambda: 1}\n",
        LINE + 1,
        "sweep.variants.a/b",
        "cannot be named 'a/b'",
    ),
    "the folder of kept stages": (
        "  variants: {stages: {lambda: 1}}\n",
        LINE,
        "sweep.variants.stages",
        "cannot be named 'stages'",
    ),
    "values without places": (
        "  variants: {a: [1, 2]}\n",
        LINE,
        "sweep.variants.a",
        "no mapping of places",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_a_problem_at_its_line(name: str) -> None:
    text, line, path, words = FAULTS[name]
    with pytest.raises(InvalidRecipe) as caught:
        sweep(text)
    [problem] = caught.value.problems
    assert problem.line == line
    assert path in (None, problem.path)
    assert words in problem.what
    assert problem.expected and problem.found and problem.fix


def test_a_mistake_beside_the_sweep_is_told_once() -> None:
    with pytest.raises(InvalidRecipe) as caught:
        sweep("  lambda: [1, 2, 3]\n", BASE.replace("density", "density: 1, density"))
    [problem] = caught.value.problems
    assert "written twice" in problem.what


@pytest.mark.parametrize(
    "text, what",
    [
        ("extract_lora: {model: org/a}\nbase_model: org/b\n", "an adapter is extracted"),
        ("base_model: org/a\nexperts: [{source_model: org/b}]\n", "a mixture is made"),
    ],
)
def test_what_no_method_merges_has_no_sweep(text: str, what: str) -> None:
    with pytest.raises(InvalidRecipe, match=f"There is no sweep where {what}"):
        parse_recipe(text + "sweep: {t: [1, 2]}\n")


def test_a_misspelt_sweep_is_told() -> None:
    with pytest.raises(InvalidRecipe, match="Unknown key 'sweeps'"):
        sweep("  lambda: [1, 2]\n", BASE.replace("sweep:", "sweeps:"))
