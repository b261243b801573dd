"""Promise: a change of anything that decides the bytes, and of nothing else, is found and named."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from merging import working_in
from tiny_models import write_family

from resumerge.engine.checks.fingerprint_diff import describe_differences
from resumerge.engine.lifecycle.session import Session
from resumerge.options import SEED, SHARD_SIZE, Options
from resumerge.planning import changes, fingerprint, fingerprint_parts
from resumerge.recipe import parse_recipe
from resumerge.recipe.normalized import normalized

RECIPE = """
merge_method: slerp
base_model: base
models: [{model: math}]
parameters: {t: [0, 0.5]}
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path)


def parts(models: Path, recipe: str = RECIPE, seed: int = SEED, size: int = SHARD_SIZE) -> dict:
    """Return the parts of a plan's fingerprint, as they are read from a ledger."""
    with working_in(models):
        plan = Session(Options(seed=seed, shard_size=size)).plan(parse_recipe(recipe))
    return dict(json.loads(json.dumps(fingerprint_parts(plan))))


def test_the_same_has_the_same_fingerprint(models: Path) -> None:
    assert fingerprint(parts(models)) == fingerprint(parts(models))
    assert changes(parts(models), parts(models)) == []


def test_comments_order_and_spelling_change_nothing(models: Path) -> None:
    same = """# a comment
parameters:
  t:
    - 0.0
    - .5
models:
  - model: math
base_model: "base"
merge_method: slerp
"""
    assert fingerprint(parts(models)) == fingerprint(parts(models, same))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("0.5", "0.6", "recipe.parameters.t[1]: 0.5 -> 0.6"),
        ("[0, 0.5]", "0", "recipe.parameters.t: [0, 0.5] -> 0"),
        (
            "{model: math}",
            "{model: math, parameters: {t: 1}}",
            "recipe.slices[0].inputs[0].parameters.t: null -> 1",
        ),
        ("slerp", "slerp\ndtype: bfloat16", 'recipe.dtype: null -> "bfloat16"'),
    ],
)
def test_a_change_of_the_recipe_is_named(models: Path, old: str, new: str, line: str) -> None:
    assert changes(parts(models), parts(models, RECIPE.replace(old, new))) == [line]


@pytest.mark.parametrize(
    ("written", "old", "new", "line"),
    [
        ("base_model: base\nmodels: [{model: a}, {model: b}]", "b}]", "c}]", "models[1].model: "),
        ("base_model: base\nmodels: [{model: a}]", ": base", ": other", "base_model: "),
        (
            "slices: [{sources: [{model: a, layer_range: [0, 1]}]}]",
            "0, 1",
            "0, 2",
            "slices[0].sources[0].layer_range[1]: ",
        ),
        (
            "base_model: base\nmodules: {text: {models: [{model: a}]}}",
            "{model: a}",
            "{model: b}",
            "modules.text.models[0].model: ",
        ),
        (
            "name: s\nmodels: [{model: a}]\n---\nmerge_method: linear\nmodels: [{model: s}]",
            "{model: a}",
            "{model: b}",
            "stage s.models[0].model: ",
        ),
    ],
)
def test_a_change_is_told_in_the_words_of_the_recipe(
    written: str, old: str, new: str, line: str
) -> None:
    before, after = (
        {"recipe": normalized(parse_recipe(f"merge_method: linear\n{text}\n"))}
        for text in (written, written.replace(old, new, 1))
    )
    kinds, [found] = describe_differences(before, after)
    assert kinds == ["recipe"] and found.startswith(line)


def test_seed_and_shard_size_decide_bytes_too(models: Path) -> None:
    assert changes(parts(models), parts(models, seed=1)) == ["seed: 0 -> 1"]
    assert changes(parts(models), parts(models, size=10**6)) == [
        "shard size: 5000000000 -> 1000000"
    ]


def test_a_changed_source_is_named(models: Path) -> None:
    before = parts(models)
    weights = models / "math" / "model.safetensors"
    os.utime(weights, ns=(0, 0))
    assert changes(before, parts(models)) == [], "a time says nothing of the content"
    data = weights.read_bytes()
    weights.write_bytes(data.replace(b'"pt"', b'"tp"'))
    [line] = changes(before, parts(models))
    weights.write_bytes(data)
    assert line.startswith("source math.files.model.safetensors.header:")


def test_not_a_number_has_not_changed() -> None:
    assert changes({"t": [math.nan]}, {"t": [math.nan]}) == []


def test_long_values_are_shortened() -> None:
    [line] = changes({"t": "a" * 1000}, {"t": "b"})
    assert len(line) < 200
