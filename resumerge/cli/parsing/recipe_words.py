"""Keys of recipes that users mistake for options, like ``--density 0.5``."""

from __future__ import annotations

from dataclasses import fields

from resumerge.methods.registry import METHODS
from resumerge.recipe.schema.keys import MergeFile

_SHORT = {"method": "merge_method", "base": "base_model", "model": "models"}


def place_in_recipe(option: str) -> str | None:
    """Return the place in a recipe for an unknown option, as advice for the user.

    Args:
        option: an option that the command does not have, like ``--density``.

    Returns:
        A sentence; None if recipes have no key or parameter of this name.
    """
    name = option.lstrip("-").replace("-", "_")
    key = _SHORT.get(name, name)
    if key in {field.name for field in fields(MergeFile)}:
        return f"'{key}:' is a key of the recipe: write it there"
    if any(parameter.name == key for method in METHODS.values() for parameter in method.parameters):
        return f"'{key}' is a parameter of methods: write it below 'parameters:' in the recipe"
    return None
