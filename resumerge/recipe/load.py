"""A recipe's text into a `Recipe`, or into all that is wrong with it at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from resumerge.errors import InputError, Problem, refuse
from resumerge.recipe.model import Conditional, Input, ModelRef, Recipe, Slice
from resumerge.recipe.options import OPTIONS, read_options
from resumerge.recipe.paths import descend, nearest_line
from resumerge.recipe.schema import RecipeFile
from resumerge.recipe.unfit import Unfit
from resumerge.recipe.wording import problems_from
from resumerge.recipe.yaml_lines import MAX_CHARS, load_yaml


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe file.

    Args:
        path: a YAML file in mergekit's format, UTF-8.

    Raises:
        InputError: the file cannot be read, or the recipe has problems: all of them, in the order
            of their lines.

    Example:
        >>> load_recipe("configs/linear.yaml").merge_method
        'linear'
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(4 * MAX_CHARS + 1).decode("utf-8-sig")
    except OSError as error:
        raise refuse(
            "The recipe cannot be read",
            where=path,
            expected="a YAML file",
            found=error.strerror or str(error),
            fix="Check the path",
        ) from None
    except UnicodeDecodeError as error:
        raise refuse(
            "The recipe is not text in UTF-8",
            where=path,
            expected="a YAML file in UTF-8",
            found=f"the byte 0x{error.object[error.start]:02x} at offset {error.start}",
            fix="Check that the path names the recipe, or save it as UTF-8",
        ) from None
    return parse_recipe(text, str(path))


def parse_recipe(text: str, file: str = "<text>") -> Recipe:
    """Check a recipe that is at hand as text.

    Args:
        file: what to call it in messages.

    Raises:
        InputError: all the problems that were found, in the order of their lines.
    """
    document = load_yaml(text, file)
    notes, unsupported = read_options(document.data)
    top = {key: value for key, value in document.data.items() if key not in OPTIONS}

    unfits = unsupported + list(_not_one_of_models_and_slices(document.data))
    problems = list(document.problems)
    problems += [_problem(unfit, file, document.lines) for unfit in unfits]
    recipe_file = None
    try:
        recipe_file = RecipeFile.model_validate(top)
    except ValidationError as errors:
        problems += problems_from(errors, file, document.lines)
    if problems or recipe_file is None:
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0))

    recipe = Recipe(
        merge_method=recipe_file.merge_method,
        slices=tuple(_slices(recipe_file)),
        base_model=recipe_file.base_model,
        parameters=recipe_file.parameters,
        dtype=recipe_file.dtype,
        out_dtype=recipe_file.out_dtype,
        stacked=bool(recipe_file.slices),
        text=text,
        file=file,
        lines=document.lines,
    )
    notes += [f"{ref} is a folder: its revision is ignored" for ref in _folders_revised(recipe)]
    notes += [f"{name} is NaN: so will be what it touches" for name in _nan_parameters(recipe)]
    return replace(recipe, notes=tuple(notes))


def _slices(file: RecipeFile) -> Iterator[Slice]:
    for index, entry in enumerate(file.slices or ()):
        path = f"slices[{index}]"
        inputs = tuple(
            Input(s.model, s.layer_range, s.parameters, f"{path}.sources[{number}]")
            for number, s in enumerate(entry.sources)
        )
        yield Slice(inputs, entry.base_model, entry.parameters, path)
    if file.models:
        listed = [
            Input(entry.model, None, entry.parameters, f"models[{index}]")
            for index, entry in enumerate(file.models)
        ]
        if file.base_model and all(entry.model != file.base_model for entry in listed):
            listed.append(Input(file.base_model, path="base_model"))
        yield Slice(tuple(listed))


def _not_one_of_models_and_slices(top: dict[Any, Any]) -> Iterator[Unfit]:
    """An empty list counts as absent, as in mergekit; `modules` has its own message."""
    written = [key for key in ("models", "slices") if top.get(key) not in (None, [])]
    if len(written) == 2:
        yield Unfit(
            "A recipe has either models or slices, not both",
            expected="models, to merge whole models; slices, to choose layers",
            found="models and slices",
            fix="Delete one of the two",
            at=("slices",),
        )
    elif not written and top.get("modules") is None:
        empty = next((key for key in ("models", "slices") if key in top), None)
        yield Unfit(
            f"The list of {empty} is empty" if empty else "The recipe names no models",
            expected="models, to merge whole models, or slices, to choose layers",
            found=f"{empty} without entries" if empty else "neither models nor slices",
            fix="Write 'models:' and below it '- model: org/name' for each model",
            at=(empty,) if empty else (),
        )


def _problem(unfit: Unfit, file: str, lines: dict[str, int]) -> Problem:
    path = descend("", unfit.at)
    line = nearest_line(lines, path)
    return Problem(unfit.what, file, path, line, unfit.expected, unfit.found, unfit.fix)


def _folders_revised(recipe: Recipe) -> list[ModelRef]:
    return [ref for ref in recipe.models if ref.revision is None and ref.text != ref.name]


def _nan_parameters(recipe: Recipe) -> Iterator[str]:
    levels = [("", recipe.parameters)]
    for slice_ in recipe.slices:
        levels.append((slice_.path, slice_.parameters))
        levels += [(input_.path, input_.parameters) for input_ in slice_.inputs]
    for path, parameters in levels:
        for name, setting in parameters.items():
            if _has_nan(setting):
                yield descend(path, ("parameters", name))


def _has_nan(setting: object) -> bool:
    if isinstance(setting, tuple):
        return any(_has_nan(entry) for entry in setting)
    if isinstance(setting, Conditional):
        return _has_nan(setting.value)
    return isinstance(setting, float) and math.isnan(setting)
