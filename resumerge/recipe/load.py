"""A recipe's text into a `Recipe`, or into all that is wrong with it at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.notes import OPTIONS, read_options
from resumerge.recipe.paths import descend, nearest_line
from resumerge.recipe.schema.keys import ModuleEntry, RecipeFile
from resumerge.recipe.schema.problems import problems_from
from resumerge.recipe.schema.sections import Fault, read_level
from resumerge.recipe.types import Conditional, Input, ModelRef, Module, Recipe, Slice
from resumerge.recipe.yaml_lines import MAX_CHARS, load_yaml


@dataclass
class UnfitRecipe(InputError):
    """A recipe that has problems.

    Args:
        rest: its top level without what is wrong there, and without models: more may be wrong with
            it. None where it names no method.
    """

    rest: Recipe | None = None


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe file.

    Args:
        path: a YAML file in mergekit's format, UTF-8.

    Raises:
        InputError: the file cannot be read.
        UnfitRecipe: the recipe has problems: all of them, in the order of their lines.

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
        UnfitRecipe: all the problems that were found, in the order of their lines.
    """
    document = load_yaml(text, file)
    notes = read_options(document.data)
    top = {key: value for key, value in document.data.items() if key not in OPTIONS}

    unfits = list(_not_one_of_models_and_slices(document.data))
    unfits += _tokenizer_twice(document.data)
    notes += list(_idle_keys(document.data))
    problems = list(document.problems)
    problems += [_problem(unfit, file, document.lines) for unfit in unfits]
    faults: list[Fault] = []
    recipe_file = read_level(RecipeFile, top, (), faults)
    problems += problems_from(faults, file, document.lines)
    if problems:
        wrong = {fault.place[0] for fault in faults}
        rest = None
        if "merge_method" not in wrong:
            sound = {key: top[key] for key in {"merge_method", "parameters"} & top.keys() - wrong}
            level = read_level(RecipeFile, sound, (), [])
            method, parameters = level.merge_method, level.parameters
            rest = Recipe(method, (), parameters=parameters, file=file, lines=document.lines)
        raise UnfitRecipe(sorted(problems, key=lambda problem: problem.line or 0), rest)

    recipe = Recipe(
        merge_method=recipe_file.merge_method,
        modules=tuple(_modules(recipe_file)),
        base_model=recipe_file.base_model,
        parameters=recipe_file.parameters,
        dtype=recipe_file.dtype,
        out_dtype=recipe_file.out_dtype,
        tokenizer=recipe_file.tokenizer or recipe_file.tokenizer_source,
        chat_template=recipe_file.chat_template,
        text=text,
        file=file,
        lines=document.lines,
    )
    notes += [f"{ref} is a folder: its revision is ignored" for ref in _folders_revised(recipe)]
    notes += [f"{name} is NaN: so will be what it touches" for name in _nan_parameters(recipe)]
    return replace(recipe, notes=tuple(notes))


def _modules(file: RecipeFile) -> Iterator[Module]:
    """The entries of ``modules``, or the whole model as the only one."""
    if not file.modules:
        yield _module(file, None, "", file.base_model)
    for name, entry in (file.modules or {}).items():
        yield _module(entry, name, f"modules.{name}", file.base_model)


def _module(
    entry: RecipeFile | ModuleEntry, name: str | None, path: str, base: ModelRef | None
) -> Module:
    """Its slices, each with the module's base where it has none of its own."""
    own = entry.base_model if name is not None else None
    slices = []
    for index, written in enumerate(entry.slices or ()):
        place = descend(path, ("slices", index))
        inputs = tuple(
            Input(s.model, s.layer_range, s.parameters, f"{place}.sources[{number}]")
            for number, s in enumerate(written.sources)
        )
        slices.append(Slice(inputs, written.base_model or own, written.parameters, place))
    if entry.models:
        listed = [
            Input(model.model, None, model.parameters, descend(path, ("models", index)))
            for index, model in enumerate(entry.models)
        ]
        base = own or base
        if base and all(model.model != base for model in entry.models):
            listed.append(Input(base, path=f"{path}.base_model" if own else "base_model"))
        slices.append(Slice(tuple(listed), own, path=path))
    parameters = entry.parameters if name is not None else {}
    return Module(tuple(slices), name, bool(entry.slices), parameters, path)


_WAYS = "models, to merge whole models; slices, to choose layers"


def _not_one_of_models_and_slices(top: dict[Any, Any]) -> Iterator[InvalidValue]:
    """Exactly one of them, at the top and in every module; an empty one counts as absent."""
    modules = top.get("modules")
    yield from _one_way(top, (), ("models", "slices", "modules"))
    for name, entry in modules.items() if isinstance(modules, dict) else ():
        if isinstance(entry, dict):
            yield from _one_way(entry, ("modules", str(name)), ("models", "slices"))


def _one_way(
    level: dict[Any, Any], at: tuple[str, ...], ways: tuple[str, ...]
) -> Iterator[InvalidValue]:
    owner = "module" if at else "recipe"
    also = "" if at else "; modules, for the parts of a model"
    written = [way for way in ways if level.get(way) not in (None, [], {})]
    if len(written) > 1:
        yield InvalidValue(
            f"A {owner} has either {' or '.join(written)}, not both",
            expected=f"{_WAYS}{also}",
            found=" and ".join(written),
            fix=f"Delete all of them but one, like '{written[1]}:' and what is below it",
            at=(*at, written[1]),
        )
    elif not written:
        empty = next((way for way in ways if way in level), None)
        yield InvalidValue(
            f"The list of {empty} is empty" if empty else f"The {owner} names no models",
            expected=f"{_WAYS}{also}",
            found=f"{empty} without entries" if empty else f"neither {' nor '.join(ways)}",
            fix="Write 'models:' and below it '- model: org/name' for each model",
            at=(*at, empty) if empty else at,
        )


def _idle_keys(top: dict[Any, Any]) -> Iterator[str]:
    """Keys below the top level that mergekit reads and that have no meaning here."""
    modules = top.get("modules")
    levels = [top, *(modules.values() if isinstance(modules, dict) else ())]
    lists = [level.get("slices") for level in levels if isinstance(level, dict)]
    slices = [entry for entries in lists if isinstance(entries, list) for entry in entries]
    if any(isinstance(entry, dict) and "residual_weight" in entry for entry in slices):
        yield "residual_weight has no effect: mergekit reads it and does nothing with it"
    if _holds(top, "override_architecture"):
        yield "override_architecture has no effect: layers are found by the tensors' names"


def _holds(value: object, key: str) -> bool:
    """Whether a key stands anywhere in a YAML value."""
    if isinstance(value, dict):
        return key in value or any(_holds(item, key) for item in value.values())
    return isinstance(value, list) and any(_holds(item, key) for item in value)


def _tokenizer_twice(top: dict[Any, Any]) -> Iterator[InvalidValue]:
    if top.get("tokenizer") is not None and top.get("tokenizer_source") is not None:
        yield InvalidValue(
            "A recipe has either tokenizer or tokenizer_source, not both",
            expected="one of the two: 'tokenizer_source: x' is short for 'tokenizer: {source: x}'",
            found="both",
            fix="Delete tokenizer_source, and write its value as 'source:' below 'tokenizer:'",
            at=("tokenizer_source",),
        )


def _problem(unfit: InvalidValue, file: str, lines: dict[str, int]) -> Problem:
    path = descend("", unfit.at)
    line = nearest_line(lines, path)
    return Problem(unfit.what, file, path, line, unfit.expected, unfit.found, unfit.fix)


def _folders_revised(recipe: Recipe) -> list[ModelRef]:
    return [ref for ref in recipe.models if ref.revision is None and ref.text != ref.name]


def _nan_parameters(recipe: Recipe) -> Iterator[str]:
    for path, parameters in recipe.parameter_levels():
        for name, setting in parameters.items():
            if _has_nan(setting):
                yield descend(path, (name,))


def _has_nan(setting: object) -> bool:
    if isinstance(setting, tuple):
        return any(_has_nan(entry) for entry in setting)
    if isinstance(setting, Conditional):
        return _has_nan(setting.value)
    return isinstance(setting, float) and math.isnan(setting)
