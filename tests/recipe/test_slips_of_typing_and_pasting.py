"""A forgotten space, a decimal comma or a pasted odd character is reported, never ignored."""

import pytest

from resumerge.errors import InputError, Problem
from resumerge.methods import METHODS
from resumerge.planning.parameters import check_parameters
from resumerge.recipe import parse_recipe

TIES = """\
merge_method: ties
base_model: org/base
models:
  - model: org/a
    parameters: {density: 0.5}
  - model: org/b
parameters: {weight: 0.5}
"""


def problems_of(text: str) -> list[Problem]:
    """Return the problems of a recipe of ties."""
    try:
        recipe = parse_recipe(text, "r.yaml")
    except InputError as error:
        return error.problems
    return check_parameters(recipe, METHODS["ties"])[0]


def test_the_recipe_that_is_changed_below_is_right() -> None:
    assert problems_of(TIES) == []


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("parameters:{density: 0.5}", "Write 'parameters: …', with a space after the colon"),
        ("parameters:\u00a0{density: 0.5}", "Write 'parameters: …', with a space after the colon"),
        ("parameters: {“density”: 0.5}", "Did you mean 'density'? … U+201C, U+201D"),
        ("parameters: {density\u200b: 0.5}", "Did you mean 'density'? … U+200B"),
        ("parameters: {density:0.5}", "Write 'density: 0.5', with a space after the colon"),
        ("parameters: {density 0.5}", "Write 'density: 0.5', with a colon after the name"),
        ("parameters: {density: 0,5}", "Write numbers like 0.5"),
        ("“density”: 0.5", "Write 'density' under 'parameters:'"),
        ("desnity: 0.5", "Write 'density' under 'parameters:'"),
        ("params: {density: 0.5}", "Did you mean 'parameters'?"),
        ("param: {density: 0.5}", "Did you mean 'parameters'?"),
        ("density:0.5:", "Write 'density' under 'parameters:'"),
    ],
)
def test_a_key_with_a_slip_is_one_problem_on_its_line(written: str, fix: str) -> None:
    [problem] = problems_of(TIES.replace("parameters: {density: 0.5}", written))
    assert problem.line == 5
    for part in fix.split(" … "):
        assert part in problem.fix


@pytest.mark.parametrize(
    ("before", "after", "fix"),
    [
        ("merge_method: ties", "merge_method:\u00a0ties", "U+00A0 (no-break space)"),
        ("merge_method: ties", "```yaml\nmerge_method: ties", "Delete the lines with ```"),
        ("{weight: 0.5}\n", "{weight: 0.5}\n```\n", "Delete the lines with ```"),
    ],
)
def test_what_a_page_adds_is_named_where_the_text_is_no_yaml(
    before: str, after: str, fix: str
) -> None:
    [problem] = problems_of(TIES.replace(before, after))
    assert problem.what == "The recipe is not valid YAML"
    assert fix in problem.fix


def test_an_entry_indented_by_no_break_spaces_is_not_left_out() -> None:
    [problem] = problems_of(TIES.replace("  - model: org/b", "\u00a0\u00a0- model: org/b"))
    assert problem.line == 6
    assert "U+00A0" in problem.fix


def test_two_keys_on_one_line_are_told_with_one_line() -> None:
    [problem] = problems_of(TIES.replace("density: 0.5", "density: 0.5, density: 0.7"))
    assert problem.what == "The key 'density' is written twice, on line 5"


def test_other_keys_are_notes_still() -> None:
    recipe = parse_recipe(TIES + "license: mit\nmodel-index: []\n", "r.yaml")
    problems, notes = check_parameters(recipe, METHODS["ties"])
    assert problems == []
    assert len(notes) == 2


def test_a_space_of_a_search_that_is_merged_is_told_its_command() -> None:
    space = TIES.replace("{weight: 0.5}", "{weight: {suggest: float, low: 0, high: 1}}")
    [problem] = problems_of(space)
    assert problem.what == "This is a range of a search, not a value"
    assert "resumerge search" in problem.fix
