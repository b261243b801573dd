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


class MatchedModules(NamedTuple):
    """The recipe's modules, matched with parts of the models.

    Args:
        modules: the recipe's modules, each with the part of the reference that it names.
        fitting: the modules whose layers all models have.
        unnamed: the parts of the reference that no module names.
        layer_maps: the origins of the layers of each stacked module; empty if a problem was found
            before, because layers may be missing.
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
        whole_model = ModulePart("the model", frozenset(), layers.main, tuple(names))
        return [(recipe.modules[0], whole_model)], [], []
    parts = find_parts(names, layers)
    matches: list[ModuleMatch] = []
    problems: list[Problem] = []
    for module in recipe.modules:
        part = next((p for p in parts if module.name in p.names), None)
        if part is None:
            problems.append(_no_such_part(recipe, models, module, parts))
        elif any(part is matched_part for _, matched_part in matches):
            problems.append(_named_twice(recipe, module, part, matches))
        else:
            matches.append((module, part))
    unnamed_parts = [p for p in parts if all(p is not matched_part for _, matched_part in matches)]
    return matches, unnamed_parts, problems


def _no_such_part(
    recipe: Recipe, models: ModelViews, module: Module, parts: list[ModulePart]
) -> Problem:
    all_names = [name for part in parts for name in sorted(part.names)]
    part_list = ", ".join(
        f"{part.name} ({len(part.tensors)} tensors" + (f", {part.stack}.*)" if part.stack else ")")
        for part in parts
    )
    return recipe.problem(
        f"{models.reference} has no module {module.name!r}",
        module.path,
        expected=part_list,
        found=module.name,
        fix=did_you_mean(str(module.name), all_names) or "Write one of these names",
    )


def _named_twice(
    recipe: Recipe, module: Module, part: ModulePart, matches: list[ModuleMatch]
) -> Problem:
    first_name = next(m.name for m, matched_part in matches if matched_part is part)
    return recipe.problem(
        f"The module {part.name} is named twice",
        module.path,
        expected="each module of the model once",
        found=f"{first_name} and {module.name}",
        fix="Delete one of the two",
    )
