"""The faults of a document, told in a recipe's terms: what, where, expected, found, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resumerge.errors import Problem
from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.paths import descend, nearest_line
from resumerge.recipe.schema.keys import (
    ModelEntry,
    ModuleEntry,
    RecipeFile,
    SliceEntry,
    SourceEntry,
)
from resumerge.recipe.schema.sections import Fault, Location, keys

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
    "list": ("a list", "Begin each entry with '- '"),
    "mapping": ("a mapping", "Write 'key: value' lines, indented"),
    "text": ("text", "Put it in quotes"),
}


def problems_from(
    faults: Sequence[Fault], file: str, lines: Mapping[str, int]
) -> Iterator[Problem]:
    """The faults as problems.

    A key that is missing because it is misspelled is one problem, not two.

    Args:
        lines: YAML path to line.
    """
    misspelled = {
        (*fault.place[:-1], _nearest(fault.place)) for fault in faults if fault.kind == "unknown"
    }
    for fault in faults:
        if fault.kind == "missing" and fault.place in misspelled:
            continue
        first = _unfit(fault)
        for unfit in (first, *first.further):
            path = descend("", (*fault.place, *unfit.at))
            yield Problem(
                unfit.what,
                where=file,
                path=path,
                line=nearest_line(lines, path),
                expected=unfit.expected,
                found=unfit.found,
                fix=unfit.fix,
            )


def _unfit(fault: Fault) -> InvalidValue:
    name = str(fault.place[-1]) if fault.place else ""
    if fault.unfit is not None:
        return fault.unfit
    if fault.kind == "unknown":
        return _unknown_key(name, fault.place)
    if fault.kind == "missing":
        expected, fix = _MISSING[name]
        return InvalidValue(f"{name} is missing", expected=expected, found="no such key", fix=fix)
    expected, fix = _SHAPES[fault.kind]
    entry = bool(fault.place) and isinstance(fault.place[-1], int)
    subject = f"An entry of '{fault.place[-2]}'" if entry else f"'{name}'"
    return InvalidValue(
        f"{subject} is not {expected}", expected=expected, found=describe(fault.value), fix=fix
    )


def _unknown_key(name: str, place: Location) -> InvalidValue:
    level, where = _level(place[:-1])
    known = keys(level)
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
    return InvalidValue(
        f"'{name}' is not a key that belongs {where}",
        expected=", ".join(known),
        found=name,
        fix=fix,
    )


def _nearest(place: Location) -> str | None:
    """The known key that an unknown one is most like, or None."""
    level, _ = _level(place[:-1])
    close = difflib.get_close_matches(str(place[-1]), keys(level), n=1)
    return close[0] if close else None


def _level(place: Sequence[str | int]) -> tuple[type[Any], str]:
    if "sources" in place:
        return SourceEntry, "in a source of a slice"
    if "slices" in place:
        return SliceEntry, "in a slice"
    if "models" in place:
        return ModelEntry, "in an entry of models"
    if "modules" in place:
        return ModuleEntry, "in a module"
    return RecipeFile, "on the top level"
