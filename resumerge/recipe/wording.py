"""pydantic's errors, told in a recipe's terms: what, where, expected, found, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from resumerge.errors import Problem
from resumerge.recipe.paths import descend, nearest_line
from resumerge.recipe.schema import (
    ModelEntry,
    ModuleEntry,
    RecipeFile,
    SliceEntry,
    SourceEntry,
)
from resumerge.recipe.unfit import Unfit, describe

Location = tuple[str | int, ...]

_MISSING = {
    "merge_method": (
        "how to merge, on the top level",
        "Add a line 'merge_method: linear', or another that 'resumerge methods' lists",
    ),
    "model": ("the model that this entry is about", "Add 'model: org/name' to this entry"),
    "sources": ("the models that this slice is made from", "Add 'sources:' to this slice"),
    "layer_range": (
        "which layers of this model the slice takes: [start, stop], stop not included",
        "Add 'layer_range: [0, 8]' with the layers meant; "
        "to merge all layers of whole models, write 'models:' instead of 'slices:'",
    ),
}
_SHAPES = {
    "list_type": ("a list", "Begin each entry with '- '"),
    "dict_type": ("a mapping", "Write 'key: value' lines, indented"),
    "model_type": ("a mapping", "Write 'key: value' lines, indented"),
    "string_type": ("text", "Put it in quotes"),
}


def problems_from(
    errors: ValidationError, file: str, lines: Mapping[str, int]
) -> Iterator[Problem]:
    """The errors of `RecipeFile.model_validate` as problems.

    A key that is missing because it is misspelled is one problem, not two.

    Args:
        lines: YAML path to line.
    """
    listed = errors.errors()
    misspelled = {
        (*error["loc"][:-1], _nearest(error["loc"]))
        for error in listed
        if error["type"] == "extra_forbidden"
    }
    for error in listed:
        if error["type"] == "missing" and error["loc"] in misspelled:
            continue
        place = error["loc"][:-1] if error["loc"][-1] == "[key]" else error["loc"]
        if error["loc"][-1] == "[key]" or error["type"] == "invalid_key":
            place = (*place[:-1], str(place[-1]))  # a number that is a key is no index
        first = _unfit(error, place)
        for unfit in (first, *first.further):
            path = descend("", (*place, *unfit.at))
            yield Problem(
                unfit.what,
                where=file,
                path=path,
                line=nearest_line(lines, path),
                expected=unfit.expected,
                found=unfit.found,
                fix=unfit.fix,
            )


def _unfit(error: Mapping[str, Any], place: Location) -> Unfit:
    kind, name = error["type"], str(place[-1]) if place else ""
    if kind == "unfit":
        found = error["ctx"]["unfit"]
        assert isinstance(found, Unfit)
        return found
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(name, place)
    if kind == "missing":
        expected, fix = _MISSING[name]
        return Unfit(f"{name} is missing", expected=expected, found="no such key", fix=fix)
    expected, fix = _SHAPES.get(kind, (error["msg"], "Correct this value"))
    entry = bool(place) and isinstance(place[-1], int)
    subject = f"An entry of '{place[-2]}'" if entry else f"'{name}'"
    return Unfit(
        f"{subject} is {f'not {expected}' if kind in _SHAPES else 'unfit'}",
        expected=expected,
        found=describe(error["input"]),
        fix=fix,
    )


def _unknown_key(name: str, place: Location) -> Unfit:
    level, where = _level(place[:-1])
    known = list(level.model_fields)
    meant = _nearest(place)
    if meant:
        fix = f"Did you mean '{meant}'? Rename it, or delete the line"
    elif name == "layer_range" and level is ModelEntry:
        fix = (
            "Models in 'models:' are merged whole, and mergekit ignores this line: delete it, "
            "or write 'slices:' with 'sources:' to choose layers"
        )
    else:
        fix = (
            f"If it is a parameter of the merge method, move it under 'parameters:' {where}; "
            "if not, delete the line, which mergekit ignores"
        )
    return Unfit(
        f"'{name}' is not a key that belongs {where}",
        expected=", ".join(known),
        found=name,
        fix=fix,
    )


def _nearest(place: Location) -> str | None:
    """The known key that an unknown one is most like, or None."""
    level, _ = _level(place[:-1])
    close = difflib.get_close_matches(str(place[-1]), list(level.model_fields), n=1)
    return close[0] if close else None


def _level(place: Sequence[str | int]) -> tuple[type[BaseModel], str]:
    if "sources" in place:
        return SourceEntry, "in a source of a slice"
    if "slices" in place:
        return SliceEntry, "in a slice"
    if "models" in place:
        return ModelEntry, "in an entry of models"
    if "modules" in place:
        return ModuleEntry, "in a module"
    return RecipeFile, "on the top level"
