"""Turns the text of a recipe into a `Recipe`, or reports everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.recipe.invalid import Findings, InvalidValue, Location
from resumerge.recipe.notes import IGNORED_KEYS, notes_on
from resumerge.recipe.paths import descend, nearest_line
from resumerge.recipe.schema.keys import ModuleEntry, RecipeFile
from resumerge.recipe.schema.sections import read_section
from resumerge.recipe.stages import check_stages, with_stages
from resumerge.recipe.types import Input, ModelRef, Module, Recipe, Slice
from resumerge.recipe.yaml_lines import MAX_CHARS, Document, load_yaml


@dataclass
class InvalidRecipe(InputError):
    """A recipe that has problems.

    Args:
        valid_parts: the documents without their invalid values, so that the rest can be checked
            further; without those of which nothing is left, or no method.
    """

    valid_parts: Sequence[Recipe] = ()


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe file.

    Args:
        path: a YAML file in mergekit's format, UTF-8.

    Raises:
        InputError: the file cannot be read.
        InvalidRecipe: the recipe has problems: all of them, in the order of their lines.

    Example:
        >>> load_recipe("configs/linear.yaml").merge_method
        'linear'
    """
    try:
        text = read_foreign(Path(path), 4 * MAX_CHARS).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            "The recipe is not text in UTF-8",
            where=path,
            expected="a YAML file in UTF-8",
            found=f"the byte 0x{error.object[error.start]:02x} at offset {error.start}",
            fix="Check that the path names the recipe, or save the file as UTF-8",
        ) from None
    except (OSError, UnfitFile) as error:
        raise refuse(
            "The recipe cannot be read",
            where=path,
            expected="a YAML file",
            found=getattr(error, "strerror", None) or str(error),
            fix="Check the path",
        ) from None
    return parse_recipe(text, str(path))


def parse_recipe(text: str, file: str = "<text>") -> Recipe:
    """Check the text of a recipe.

    Args:
        file: its name in messages.

    Raises:
        InvalidRecipe: the recipe has problems: all of them, in the order of their lines.
    """
    documents = load_yaml(text, file)
    ignored = IGNORED_KEYS - {"name"} if len(documents) > 1 else IGNORED_KEYS
    read = [_read_document(document, text, file, ignored) for document in documents]
    problems = [problem for _, found in read for problem in found]
    recipes = [recipe for recipe, _ in read if recipe is not None]
    if not problems:
        problems = check_stages(recipes)
    if problems:
        raise InvalidRecipe(sorted(problems, key=lambda problem: problem.line or 0), recipes)
    return with_stages(recipes)


def _read_document(
    document: Document, text: str, file: str, ignored: Collection[str]
) -> tuple[Recipe | None, list[Problem]]:
    """One document; without its invalid values where it has problems, None if nothing is left."""
    errors = Findings()
    errors += [*_check_choices(document.data), *_check_tokenizer(document.data)]
    top = {key: value for key, value in document.data.items() if key not in ignored}
    written = read_section(RecipeFile, top, (), errors)
    if written is None or errors or document.problems:
        valid = _valid_part(top, errors)
        part = _recipe(valid, errors, text, file, document) if valid else None
        return part, [*document.problems, *(_problem(error, file, document) for error in errors)]
    recipe = _recipe(written, errors, text, file, document)
    return replace(recipe, notes=tuple(notes_on(recipe, document.data, ignored))), []


def _recipe(
    written: RecipeFile, findings: Findings, text: str, file: str, document: Document
) -> Recipe:
    return Recipe(
        merge_method=written.merge_method,
        modules=tuple(_modules(written)),
        base_model=written.base_model,
        parameters=written.parameters,
        dtype=written.dtype,
        out_dtype=written.out_dtype,
        tokenizer=written.tokenizer or written.tokenizer_source,
        chat_template=written.chat_template,
        experts_together=written.experts is not None,
        ignored={descend("", at): str(at[-1]) for at in findings.ignored},
        text=text,
        file=file,
        lines=document.lines,
        name=written.name or "",
    )


def _problem(error: InvalidValue, file: str, document: Document) -> Problem:
    path = descend("", error.at)
    line = nearest_line(document.lines, path)
    return Problem(
        error.what, file, path, line, error.expected, error.found, error.fix, error.paste
    )


def _valid_part(top: dict[Any, Any], errors: Findings) -> RecipeFile | None:
    """What is left of a recipe without invalid values, and without what is invalid then."""
    rest = deepcopy(top)
    while sum(_delete(rest, error.at) for error in errors):
        errors = Findings()
        written = read_section(RecipeFile, rest, (), errors)
        if written is not None:
            return written
    return None


def _delete(tree: Any, at: Location) -> bool:
    """Delete a value; a list as a whole, so that every other entry keeps its place.

    Returns:
        False where neither the value nor a section around it is there any more.
    """
    if not at:
        return False
    *way, last = at
    around = tree
    for step in way:
        try:
            around = around[step]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(around, dict) and last in around:
        del around[last]
        return True
    return _delete(tree, tuple(way))


def _modules(file: RecipeFile) -> Iterator[Module]:
    """The entries of ``modules``, or one module that is the whole model."""
    if not file.modules:
        yield _module(file, None, "", file.base_model)
    for name, entry in (file.modules or {}).items():
        yield _module(entry, name, f"modules.{name}", file.base_model)


def _module(
    entry: RecipeFile | ModuleEntry, name: str | None, path: str, base: ModelRef | None
) -> Module:
    """One module; its slices take its base model where they have none of their own."""
    own = entry.base_model if name is not None else None
    slices = []
    for index, written in enumerate(entry.slices or ()):
        slice_path = descend(path, ("slices", index))
        inputs = tuple(
            Input(s.model, s.layer_range, s.parameters, f"{slice_path}.sources[{number}]")
            for number, s in enumerate(written.sources)
        )
        slices.append(Slice(inputs, written.base_model or own, written.parameters, slice_path))
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


def _check_choices(top: Mapping[Any, Any]) -> Iterator[InvalidValue]:
    """Check that the recipe and each module have exactly one list of models.

    An empty list counts as absent.
    """
    yield from _check_choice(top, (), ("models", "slices", "modules"))
    modules = top.get("modules")
    for name, entry in modules.items() if isinstance(modules, dict) else ():
        if isinstance(entry, dict):
            yield from _check_choice(entry, ("modules", str(name)), ("models", "slices"))


def _check_choice(
    section: Mapping[Any, Any], at: tuple[str, ...], choices: tuple[str, ...]
) -> Iterator[InvalidValue]:
    owner = "module" if at else "recipe"
    expected = "models, to merge whole models; slices, to choose layers"
    expected += "" if at else "; modules, to merge the modules of a model in different ways"
    written = [key for key in choices if section.get(key) not in (None, [], {})]
    if len(written) > 1:
        yield InvalidValue(
            f"A {owner} has either {' or '.join(written)}, not both",
            expected=expected,
            found=" and ".join(written),
            fix=f"Delete all but one of them, for example '{written[1]}:' and what is below it",
            at=(*at, written[1]),
        )
    elif not written:
        empty = next((key for key in choices if key in section), None)
        yield InvalidValue(
            f"The list of {empty} is empty" if empty else f"The {owner} names no models",
            expected=expected,
            found=f"{empty} without entries" if empty else f"neither {' nor '.join(choices)}",
            fix="Write 'models:' and below it '- model: org/name' for each model",
            at=(*at, empty) if empty else at,
        )


def _check_tokenizer(top: Mapping[Any, Any]) -> Iterator[InvalidValue]:
    if top.get("tokenizer") is not None and top.get("tokenizer_source") is not None:
        yield InvalidValue(
            "A recipe has either tokenizer or tokenizer_source, not both",
            expected="one of the two: 'tokenizer_source: x' is short for 'tokenizer: {source: x}'",
            found="both",
            fix="Delete tokenizer_source, and write its value as 'source:' below 'tokenizer:'",
            at=("tokenizer_source",),
        )
