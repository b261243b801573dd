"""A recipe of a mixture: every mistake is a problem at its line, all at once."""

from __future__ import annotations

import pytest

from resumerge.recipe import parse_recipe
from resumerge.recipe.load import InvalidRecipe

TOP = "base_model: org/base\n"
TWO = """\
experts:
  - source_model: org/a
    positive_prompts: [sums]
  - source_model: org/b
    positive_prompts: [songs]
"""
FAULTS = {
    "no base": (TWO + "gate_mode: random\n", [("base_model", "'base_model' is missing")]),
    "no experts": (TOP + "experts: []\ngate_mode: random\n", [("experts", "is empty")]),
    "no model": (
        TOP + "gate_mode: random\nexperts_per_token: 1\nexperts:\n  - noise_scale: 0.1\n",
        [("experts[0].source_model", "'source_model' is missing")],
    ),
    "a misspelt key of an expert": (
        TOP + "gate_mode: random\n" + TWO + "    noise_scal: 0.1\n",
        [("experts[1].noise_scal", "Unknown key 'noise_scal'")],
    ),
    "an unknown mode": (TOP + "gate_mode: cheap_embd\n" + TWO, [("gate_mode", "'gate_mode'")]),
    "no prompts": (
        TOP + "gate_mode: cheap_embed\nexperts:\n  - source_model: a/a\n  - source_model: a/b\n",
        [("experts[0]", "no positive_prompts"), ("experts[1]", "no positive_prompts")],
    ),
    "the same prompts": (
        TOP + "gate_mode: cheap_embed\n" + TWO.replace("songs", "sums"),
        [("experts[1].positive_prompts", "All experts have the same prompts")],
    ),
    "numbers as prompts": (
        TOP + "gate_mode: cheap_embed\n" + TWO.replace("sums", "1"),
        [("experts[0].positive_prompts", "not a list of prompts")],
    ),
    "half of a surrogate pair": (
        TOP + "gate_mode: cheap_embed\n" + TWO.replace("sums", r'"\ud800"'),
        [("experts[0].positive_prompts", "not a list of prompts")],
    ),
    "a scale without end": (
        TOP + "gate_mode: random\n" + TWO + f"    residual_scale: 1{400 * '0'}\n",
        [("experts[1].residual_scale", "not a number")],
    ),
    "too few experts": (
        TOP + "gate_mode: random\nexperts_per_token: 3\n" + TWO,
        [("experts_per_token", "cannot use 3 of 2")],
    ),
    "too few for the default": (
        TOP + "gate_mode: random\nexperts:\n  - source_model: a/a\n",
        [("experts", "cannot use 2 of 1")],
    ),
    "no whole number": (
        TOP + "gate_mode: random\nexperts_per_token: 1.5\n" + TWO,
        [("experts_per_token", "not a number of experts")],
    ),
    "an unknown layout": (
        TOP + "gate_mode: random\nexpert_layout: pack\n" + TWO,
        [("expert_layout", "'expert_layout'")],
    ),
    "a scale that is text": (
        TOP + "gate_mode: random\n" + TWO + "    residual_scale: much\n",
        [("experts[1].residual_scale", "not a number")],
    ),
    "merging as well": (
        TOP + "gate_mode: random\nmerge_method: linear\n" + TWO,
        [("merge_method", "either 'experts'")],
    ),
    "several at once": (
        TOP + "gate_mode: rand\ndtype: f12\nexpert_layout: x\n" + TWO,
        [("gate_mode", "gate_mode"), ("dtype", "dtype"), ("expert_layout", "expert_layout")],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_a_problem_at_its_line(name: str) -> None:
    text, expected = FAULTS[name]
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe(text, "moe.yaml")
    problems = caught.value.problems
    assert [problem.path for problem in problems] == [path for path, _ in expected]
    for problem, (_, words) in zip(problems, expected):
        assert words in problem.what
        assert problem.line and problem.expected and problem.found and problem.fix


def test_uniform_random_needs_no_prompts() -> None:
    """mergekit-moe 0.1.5 requires prompts here."""
    text = "gate_mode: uniform_random\nexperts:\n  - source_model: a/a\n  - source_model: a/b\n"
    recipe = parse_recipe(TOP + text)
    assert recipe.mixture is not None and recipe.mixture.experts_per_token == 2
    assert [str(ref) for ref in recipe.models] == ["org/base", "a/a", "a/b"]


@pytest.mark.parametrize("scale", ["1e-2", "'0.01'"])
def test_a_scale_may_be_a_number_in_words_of_yaml(scale: str) -> None:
    """YAML 1.1 reads 1e-2 as text, which mergekit-moe accepts as a number."""
    recipe = parse_recipe(TOP + "gate_mode: random\n" + TWO + f"    noise_scale: {scale}\n")
    assert recipe.mixture is not None
    assert [expert.noise_scale for expert in recipe.mixture.experts] == [0.0, 0.01]


def test_unknown_keys_are_notes() -> None:
    recipe = parse_recipe(TOP + "gate_mode: random\nauthor: me\n" + TWO)
    assert list(recipe.ignored.values()) == ["author"]


def test_experts_together_is_still_a_key_of_merges() -> None:
    text = "merge_method: linear\nmodels:\n  - model: org/a\n    parameters: {weight: 1}\n"
    assert parse_recipe(text + "experts: together\n").mixture is None
