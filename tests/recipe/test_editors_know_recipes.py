"""Promise: the JSON schema of recipes is current, and takes the recipes that the program takes."""

from __future__ import annotations

import ast
import json
import runpy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from resumerge.errors import InputError
from resumerge.recipe import parse_recipe

jsonschema = pytest.importorskip("jsonschema")

ROOMS = ("recipe", "planning", "experts", "tokenizers")
ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "recipe.schema.json").read_text(encoding="utf-8"))


def lenient(schema: Any) -> Any:
    """Return the schema without its refusal of unknown keys, which the program ignores."""
    if isinstance(schema, list):
        return [lenient(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if (k, v) != ("additionalProperties", False)}
    return {key: lenient(value) for key, value in kept.items()}


STRICT = jsonschema.Draft202012Validator(SCHEMA)
LENIENT = jsonschema.Draft202012Validator(lenient(SCHEMA))


def errors(text: str, validator: Any = STRICT) -> list[str]:
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    return [
        f"{error.json_path}: {error.message[:200]}"
        for document in documents
        for error in validator.iter_errors(document)
    ]


def recipes_of_tests() -> Iterator[tuple[str, str]]:
    """Yield every text with models that is a recipe in a test of `ROOMS`, with its place."""
    files = (file for room in ROOMS for file in (ROOT / "tests" / room).rglob("*.py"))
    for file in sorted(files):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Constant) and isinstance(value, str) and "models:" in value:
                with suppress(InputError, ValueError):
                    parse_recipe(value)
                    yield f"{file.name}:{node.lineno}", value


def test_it_is_current() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "recipe_schema.py"))["text"]()
    assert json.loads(written) == SCHEMA, "run: python docs/recipe_schema.py"
    STRICT.check_schema(SCHEMA)


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_it_takes_the_examples(config: Path) -> None:
    assert errors(config.read_text(encoding="utf-8")) == []


def test_it_takes_what_tests_write() -> None:
    recipes = dict(recipes_of_tests())
    assert len(recipes) > 20
    found = {place: wrong for place, text in recipes.items() if (wrong := errors(text, LENIENT))}
    assert found == {}


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ("merge_method: linear\nmodels: [{model: a, weigth: 1}]", "$.models[0]"),
        ("merge_method: linear\nmodels: [a]", "$.models"),
        ("merge_method: linear\nmodels: [{model: a}]\ndtype: fp16", "$.dtype"),
        ("models: [{model: a}]", "$"),
        ("base_model: a\nexperts: [{positive_prompts: [x]}]", "$.experts[0]"),
    ],
)
def test_it_finds_what_is_misspelled(wrong: Any, path: str) -> None:
    assert any(error.startswith(path) for error in errors(wrong))
