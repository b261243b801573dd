"""Promise: a recipe that makes another model has another fingerprint; a comment changes nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from resumerge.recipe import parse_recipe
from resumerge.recipe.normalized import normalized
from resumerge.recipe.references import read_reference
from resumerge.recipe.schema.keys import MergeFile
from resumerge.recipe.types import Expert, Extraction, Mixture, Recipe, TokenizerSetting

A, B = read_reference("org/a"), read_reference("org/b")
RECIPE = parse_recipe("merge_method: linear\nmodels: [{model: org/a}, {model: org/b}]")

OTHER: dict[str, Any] = {
    "merge_method": "slerp",
    "modules": parse_recipe("merge_method: linear\nmodels: [{model: org/b}]").modules,
    "base_model": A,
    "parameters": {"weight": 2.0},
    "dtype": "float32",
    "out_dtype": "bfloat16",
    "tokenizer": TokenizerSetting("union"),
    "chat_template": "auto",
    "experts_together": True,
    "mixture": Mixture((Expert(A), Expert(B))),
    "extract_expert": 0,
    "extraction": Extraction(A),
    "rank": 8,
    "stages": (replace(RECIPE, name="stage"),),
    "variants": {"variant": RECIPE},
}
"""For each field that decides the result, a value that `RECIPE` does not have."""

DECIDES_NOTHING = {"ignored", "notes", "text", "file", "lines", "name"}


def test_every_field_is_known_to_decide_or_not() -> None:
    assert {field.name for field in fields(Recipe)} == OTHER.keys() | DECIDES_NOTHING


MERGE = "models: [{model: org/a}, {model: org/b}]"
SLICES = "slices: [{sources: [{model: org/a, layer_range: [0, 1]}]}]"
WRITTEN = {
    "merge_method": "merge_method: ties",
    "models": "models: [{model: org/b}]",
    "slices": SLICES,
    "modules": f"modules: {{decoder: {{{SLICES}}}}}",
    "base_model": "base_model: org/a",
    "parameters": "parameters: {weight: 2}",
    "dtype": "dtype: float32",
    "out_dtype": "out_dtype: bfloat16",
    "tokenizer": "tokenizer: {source: union}",
    "tokenizer_source": "tokenizer_source: union",
    "chat_template": "chat_template: auto",
    "experts": "experts: together",
    "extract_expert": "extract_expert: 0",
    "sweep": "sweep: {weight: [1, 2]}\nparameters: {weight: $weight}",
    "rank": "rank: 8",
}
"""For each key at the top of a recipe that merges, the line that makes another recipe of it."""


def test_every_key_of_a_recipe_is_known_to_decide_or_not() -> None:
    """`average` lists files of a folder: the tests of averages have its recipes."""
    assert {field.name for field in fields(MergeFile)} == WRITTEN.keys() | {"name", "average"}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_key_that_decides_is_carried_over_from_the_text(name: str) -> None:
    lines = {"merge_method": "merge_method: linear", "models": MERGE}
    if name in ("slices", "modules"):
        del lines["models"]
    text = "\n".join({**lines, name: WRITTEN[name]}.values())
    assert normalized(parse_recipe(text)) != normalized(RECIPE)


@pytest.mark.parametrize("name", OTHER)
def test_a_field_that_decides_is_in_the_fingerprint(name: str) -> None:
    assert normalized(replace(RECIPE, **{name: OTHER[name]})) != normalized(RECIPE)
