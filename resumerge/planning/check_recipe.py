"""What is wrong with a recipe that can be told before any model is looked at."""

from __future__ import annotations

import difflib

from resumerge.errors import Problem
from resumerge.methods import METHODS
from resumerge.planning.chat_template import choose_template
from resumerge.planning.nearest import nearest
from resumerge.planning.parameters import check_parameters
from resumerge.planning.slices import check_inputs, with_bases
from resumerge.recipe import Recipe


def check_recipe(recipe: Recipe) -> list[Problem]:
    """Problems with the method, its parameters, the number of models and the chat template.

    Parameters of a method that there is not are read as those of the one that may be meant.
    """
    name = recipe.merge_method
    _, problems, _ = choose_template(recipe, ())
    meant = name if name in METHODS else next(iter(difflib.get_close_matches(name, METHODS)), None)
    unsound, _ = check_parameters(recipe, METHODS[meant] if meant else None)
    problems = [*problems, *unsound]
    if name not in METHODS:
        return [unknown_method(recipe), *problems]
    recipe, unknown = with_bases(recipe, METHODS[name])
    return [*problems, *unknown, *check_inputs(recipe, METHODS[name])]


def unknown_method(recipe: Recipe) -> Problem:
    """What to say of a ``merge_method`` that there is not."""
    name = recipe.merge_method
    return recipe.problem(
        f"Unknown merge method {name!r}",
        "merge_method",
        expected=", ".join(METHODS),
        found=name,
        fix=nearest(name, METHODS) or "choose one of these",
    )
