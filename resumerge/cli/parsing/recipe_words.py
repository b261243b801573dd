"""Keys of recipes that a user writes as options: ``--density 0.5``."""

from __future__ import annotations

from dataclasses import fields

from resumerge.methods.registry import METHODS
from resumerge.recipe.schema.keys import MergeFile

_SHORT = {"method": "merge_method", "base": "base_model", "model": "models"}


def place_in_recipe(option: str) -> str | None:
    """Return where a recipe has what an option names; None if recipes have no such word.

    Args:
        option: an option that no command has, like ``--density``.
    """
    name = option.lstrip("-").replace("-", "_")
    key = _SHORT.get(name, name)
    if key in {field.name for field in fields(MergeFile)}:
        return f"'{key}:' is a key of the recipe: write it there"
    if any(parameter.name == key for method in METHODS.values() for parameter in method.parameters):
        return f"'{key}' is a parameter of methods: write it below 'parameters:' in the recipe"
    return None
