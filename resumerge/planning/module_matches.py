"""Matching of a recipe's modules with the parts of the reference model that they name."""

from __future__ import annotations

from typing import NamedTuple

from resumerge.errors import Problem
from resumerge.layout import ModulePart, find_parts
from resumerge.layout.model_views import ModelViews
from resumerge.planning.plan import LayerMap
from resumerge.recipe import Module, Recipe
from resumerge.recipe.spelling import did_you_mean

ModuleMatch = tuple[Module, ModulePart]
"""A module of the recipe, and the part of the reference model that it names."""


class Matched(NamedTuple):
    """The recipe's modules, matched with parts of the models.

    Args:
        modules: the recipe's modules, each with the part of the reference that it names.
        fitting: the modules whose layers all models have.
        unnamed: the parts of the reference that no module names.
        layer_maps: the origins of stacked layers.
    """

    modules: list[ModuleMatch]
    fitting: list[ModuleMatch]
    unnamed: list[ModulePart]
    layer_maps: list[LayerMap]


def match_modules(
    recipe: Recipe, models: ModelViews
) -> tuple[list[ModuleMatch], list[ModulePart], list[Problem]]:
    """Match the recipe's modules with the parts of the reference model.

    Returns:
        The matches, the parts that no module names, and the problems.
    """
    layers = models.layers[models.reference]
    names = models.ordered(models.reference)
    if recipe.modules[0].name is None:
        whole = ModulePart("the model", frozenset(), layers.main, tuple(names))
        return [(recipe.modules[0], whole)], [], []
    parts = find_parts(names, layers)
    matches: list[ModuleMatch] = []
    problems: list[Problem] = []
    for module in recipe.modules:
        part = next((p for p in parts if module.name in p.names), None)
        if part is None:
            problems.append(_no_such_part(recipe, models, module, parts))
        elif any(part is taken for _, taken in matches):
            problems.append(_named_twice(recipe, module, part, matches))
        else:
            matches.append((module, part))
    unnamed = [p for p in parts if all(p is not taken for _, taken in matches)]
    return matches, unnamed, problems


def _no_such_part(
    recipe: Recipe, models: ModelViews, module: Module, parts: list[ModulePart]
) -> Problem:
    all_names = [name for part in parts for name in sorted(part.names)]
    described = ", ".join(
        f"{part.name} ({len(part.tensors)} tensors" + (f", {part.stack}.*)" if part.stack else ")")
        for part in parts
    )
    return recipe.problem(
        f"{models.reference} has no module {module.name!r}",
        module.path,
        expected=described,
        found=module.name,
        fix=did_you_mean(str(module.name), all_names) or "Write one of these names",
    )


def _named_twice(
    recipe: Recipe, module: Module, part: ModulePart, matches: list[ModuleMatch]
) -> Problem:
    first = next(m.name for m, taken in matches if taken is part)
    return recipe.problem(
        f"The module {part.name} is named twice",
        module.path,
        expected="each module of the model once",
        found=f"{first} and {module.name}",
        fix="Delete one of the two",
    )
