"""Checks of a recipe that need no model."""

from __future__ import annotations

from pathlib import Path

from resumerge.errors import InputError, Problem, refuse
from resumerge.methods import METHODS, MergeMethod
from resumerge.planning.parameters import check_parameters
from resumerge.planning.slices import check_inputs, with_bases
from resumerge.recipe import Recipe, load_recipe
from resumerge.recipe.load import InvalidRecipe
from resumerge.recipe.references import is_local
from resumerge.recipe.spelling import closest, did_you_mean
from resumerge.sources.local import is_adapter_folder
from resumerge.tokenizers.chat_template import choose_template

OWN_METHODS = (
    "For a method of your own, name its file in the environment variable RESUMERGE_METHODS, or "
    "install a package with an entry point 'resumerge.methods'"
)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file. If it has errors, the names in its valid parts are also checked.

    Raises:
        InputError: the recipe is not valid; holds all problems, in the order of their lines.
    """
    try:
        return load_recipe(path)
    except InvalidRecipe as error:
        problems_of_names = [
            problem for part in error.valid_parts for problem in _check_names(part)
        ]
        problems = [*error.problems, *problems_of_names]
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0)) from None


def check_recipe(recipe: Recipe) -> list[Problem]:
    """Return the problems with methods, parameters, the number of models and chat templates."""
    problems: list[Problem] = []
    for document in recipe.documents:  # the variants of a sweep repeat the same problems
        problems += [problem for problem in _check_document(document) if problem not in problems]
    return problems


def _check_document(recipe: Recipe) -> list[Problem]:
    if not recipe.has_method:
        return []
    _, problems, _ = choose_template(recipe, ())
    problems = [*problems, *_check_names(recipe)]
    method = METHODS.get(recipe.merge_method)
    if method is None:
        return problems
    if _may_be_of_adapters(recipe, method):
        return problems
    recipe, base_problems = with_bases(recipe, method)
    return [*problems, *base_problems, *check_inputs(recipe, method)]


def _may_be_of_adapters(recipe: Recipe, method: MergeMethod) -> bool:
    """Return whether all models may be adapters, as far as is known before they are opened.

    A recipe of adapters needs no base model. Its other problems are found when it is planned.
    """
    if method.base != "required" or recipe.base_model is not None or recipe.stages:
        return False
    local_names = {ref.name for ref in recipe.merged_models if is_local(ref.name)}
    adapter_names = {name for name in local_names if is_adapter_folder(name)}
    missing_names = {name for name in local_names if adapter_names and not Path(name).exists()}
    if local_names - adapter_names - missing_names or any(ref.lora for ref in recipe.merged_models):
        return False
    return method.combines_changes or len(adapter_names) == len(recipe.merged_models)


def _check_names(recipe: Recipe) -> list[Problem]:
    """Return the problems with the method and with parameters.

    If the method is unknown, its parameters are checked against the method with the closest name.
    If no name is close, the name may be that of a user's method, and parameters are not checked.
    """
    if not recipe.has_method:
        return []
    name = recipe.merge_method
    method_name = name if name in METHODS else closest(name, METHODS)
    if method_name is None:
        return [unknown_method(recipe)]
    parameter_problems, _ = check_parameters(recipe, METHODS[method_name])
    return parameter_problems if name in METHODS else [unknown_method(recipe), *parameter_problems]


def find_method(name: str) -> MergeMethod:
    """Return the merge method with the name that a user typed.

    Raises:
        InputError: no method has this name.
    """
    if name not in METHODS:
        raise refuse(
            f"Unknown merge method {name!r}",
            expected=", ".join(METHODS),
            fix=f"{did_you_mean(name, METHODS) or 'Name one of these.'} {OWN_METHODS}",
        )
    return METHODS[name]


def unknown_method(recipe: Recipe) -> Problem:
    """Return the problem of a ``merge_method`` that does not exist."""
    name = recipe.merge_method
    return recipe.problem(
        f"Unknown merge method {name!r}",
        "merge_method",
        expected=", ".join(METHODS),
        found=name,
        fix=f"{did_you_mean(name, METHODS) or 'Choose one of these.'} {OWN_METHODS}",
    )
