"""A space is a recipe with ranges; the recipe of a trial has plain values in their places."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from resumerge.errors import InputError, Problem
from resumerge.optimisation.ranges import read_suggestion
from resumerge.optimisation.space import RangePlace, Space, parse_space, ranges_in
from resumerge.recipe.yaml_lines import Document

RECIPE = """\
merge_method: linear
models:
  - model: a
    parameters:
      weight: {}
  - model: b
    parameters:
      weight: 1
"""


def space_of(text: str) -> Space:
    return parse_space(text, "space.yaml")


def with_weight(text: str) -> str:
    return RECIPE.replace("{}", text)


def problem_of(text: str) -> Problem:
    with pytest.raises(InputError) as refused:
        space_of(text)
    [problem] = refused.value.problems
    return problem


text = st.text(st.characters(min_codepoint=32, max_codepoint=126))
ranges = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(
        lambda pair: {"suggest": "float", "low": pair[0], "high": pair[0] + pair[1]}
    ),
    st.tuples(st.floats(1e-9, 1.0), st.floats(1.5, 1e9)).map(
        lambda pair: {"suggest": "float", "low": pair[0], "high": pair[1], "log": True}
    ),
    st.tuples(st.integers(-1000, 1000), st.integers(1, 1000), st.integers(1, 3)).map(
        lambda three: {
            "suggest": "int",
            "low": three[0],
            "high": three[0] + max(three[1], three[2]),
            "step": three[2],
        }
    ),
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(2, 99), text, st.lists(st.floats(2, 3)))
        , min_size=2, max_size=5, unique_by=repr,
    ).map(lambda choices: {"suggest": "categorical", "choices": choices}),
)  # fmt: skip
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), text)
trees = st.recursive(
    st.one_of(plain, ranges),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3), st.dictionaries(text, inside, max_size=3)
    ),
    max_leaves=8,
)


def filled(tree: Any, draw: Any) -> Any:
    """Return the tree with a drawn value in place of each range."""
    if isinstance(tree, dict):
        if "suggest" in tree:
            return draw(tree)
        return {key: filled(value, draw) for key, value in tree.items()}
    return [filled(each, draw) for each in tree] if isinstance(tree, list) else tree


@given(tree=st.dictionaries(text, trees, min_size=1), data=st.data())
def test_each_range_is_replaced_and_nothing_else(tree: dict[str, Any], data: Any) -> None:

    found = dict(ranges_in(tree, ()))
    suggestions = {str(at): read_suggestion(each, at) for at, each in found.items()}
    places = tuple(RangePlace(0, at, str(at)) for at in found)
    space = Space("space.yaml", (Document(tree, {}, ()),), suggestions, places)
    values: dict[str, Any] = {}
    for name, suggestion in suggestions.items():
        distribution: Any = suggestion.distribution()
        if suggestion.choices:
            values[name] = data.draw(st.sampled_from([label for label, _ in suggestion.choices]))
        else:
            values[name] = data.draw(st.sampled_from([distribution.low, distribution.high]))
    order = iter(values.items())

    def draw(_: object) -> Any:
        name, value = next(order)
        return suggestions[name].value(value)

    assert yaml.safe_load(space.recipe(values)) == filled(tree, draw)


@given(written=ranges, data=st.data())
def test_what_is_suggested_lies_in_the_range(written: dict[str, Any], data: Any) -> None:
    import optuna

    suggestion = read_suggestion(written, ())
    seed = data.draw(st.integers(0, 99))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    value = suggestion.value(study.ask({"x": suggestion.distribution()}).params["x"])
    if "choices" in written:
        assert any(value is each or value == each for each in written["choices"])
    else:
        assert written["low"] <= value <= written["high"]
        assert isinstance(value, int) == (written["suggest"] == "int")
        assert (value - written["low"]) % written.get("step", 1) == 0 or isinstance(value, float)


@given(written=ranges, share=st.floats(0, 1))
def test_a_share_of_a_range_may_be_suggested(written: dict[str, Any], share: float) -> None:
    suggestion = read_suggestion(written, ())
    distribution: Any = suggestion.distribution()
    between = suggestion.between(share)
    assert distribution._contains(distribution.to_internal_repr(between))


def test_a_grid_is_every_combination() -> None:
    space = space_of(
        with_weight("{suggest: float, low: 0, high: 0.5, step: 0.25}").replace(
            "weight: 1", "weight: {suggest: int, low: 1, high: 3, step: 2}"
        )
    )
    points = [tuple(point.values()) for point in space.grid()]
    assert points == [(0, 1), (0, 3), (0.25, 1), (0.25, 3), (0.5, 1), (0.5, 3)]


def test_places_of_one_name_share_the_value() -> None:
    named = "{suggest: float, low: 0, high: 1, name: w}"
    space = space_of(with_weight(named).replace("weight: 1", f"weight: {named}"))
    assert list(space.suggestions) == ["w"]
    recipe = yaml.safe_load(space.recipe({"w": 0.25}))
    assert [each["parameters"]["weight"] for each in recipe["models"]] == [0.25, 0.25]
    other = named.replace("high: 1", "high: 2")
    problem = problem_of(with_weight(named).replace("weight: 1", f"weight: {other}"))
    assert "called 'w'" in problem.what and problem.line == 8


def test_a_range_may_be_in_a_gradient_and_in_a_stage() -> None:
    stage = with_weight("[0, {suggest: float, low: 0, high: 1}]") + "name: first\n"
    space = space_of(stage + "---\n" + with_weight("0.5").replace("model: a", "model: first"))
    [name] = space.suggestions
    assert name == "documents[0].models[0].parameters.weight[1]"
    first, second = yaml.safe_load_all(space.recipe({name: 0.25}))
    assert first["models"][0]["parameters"]["weight"] == [0, 0.25]
    assert second["models"][0]["parameters"]["weight"] == 0.5


@pytest.mark.parametrize(
    ("written", "what", "fix"),
    [
        ("{suggest: flaot, low: 0, high: 1}", "Nothing is suggested by 'flaot'", "'float'"),
        ("{suggest: float, low: 1, high: 0}", "is not less than", "low: 0, high: 1"),
        ("{suggest: float, low: 1, high: 1}", "is not less than", "Write 1 in place"),
        ("{suggest: float, low: 0}", "'high' is missing", "{suggest: float"),
        ("{suggest: float, low: 0, high: .nan}", "not a number", "{suggest: float"),
        ("{suggest: float, low: 0, high: 1, log: true}", "does not begin above 0", "low: 0.001"),
        ("{suggest: float, low: 0, high: 1, step: 2}", "step", "Delete 'step:'"),
        ("{suggest: float, low: 0, hihg: 1}", "has no key 'hihg'", "'high'"),
        ("{suggest: float, low: 0, high: 1, choices: [1]}", "has no key 'choices'", "Write"),
        ("{suggest: int, low: 0.5, high: 2}", "not a number", "{suggest: int"),
        ("{suggest: categorical, choices: [1]}", "nothing to choose", "{suggest: categorical"),
        ("{suggest: categorical, choices: [1, 1.0]}", "twice", "Delete one"),
        ("{suggest: float, low: 0, high: 1, name: 3}", "is not text", "Write a word"),
    ],
)
def test_a_range_that_is_none_is_refused_with_its_line(written: str, what: str, fix: str) -> None:
    problem = problem_of(with_weight(written))
    assert what in problem.what
    assert problem.line == 5
    assert fix in problem.fix


def test_a_small_number_may_be_written_without_a_point() -> None:
    space = space_of(with_weight("{suggest: float, low: 1e-3, high: 1, log: true}"))
    [suggestion] = space.suggestions.values()
    assert suggestion.low == 0.001


@pytest.mark.parametrize("key", ["sweep: {t: [1, 2]}", "average: {models: x, window: 2}"])
def test_a_space_makes_one_model(key: str) -> None:
    problem = problem_of(with_weight("{suggest: float, low: 0, high: 1}") + key + "\n")
    assert "makes several" in problem.what and problem.line == 9


def test_a_recipe_without_ranges_is_refused() -> None:
    problem = problem_of(with_weight("1"))
    assert "nothing to search for" in problem.what
    assert "resumerge run" in problem.fix


def test_what_only_an_end_of_a_range_shows_is_told_before_the_search() -> None:
    text = with_weight("1")
    text += "parameters: {normalize: {suggest: categorical, choices: [true, maybe]}}\n"
    problem = problem_of(text)
    assert "normalize" in str(problem) and problem.line == 9
    assert problem.where == "space.yaml"
    methods = "{suggest: categorical, choices: [linear, linaer]}"
    problem = problem_of(with_weight("1").replace("linear", methods, 1))
    assert "linaer" in str(problem) and problem.line == 1
