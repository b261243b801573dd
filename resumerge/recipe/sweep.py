"""The key ``sweep``: several models from one recipe, with different values in some places."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from resumerge.errors import Problem
from resumerge.output_path import EXTRACTION, STAGES, is_stage_folder, twin_of
from resumerge.recipe.invalid import InvalidValue, Location, describe
from resumerge.recipe.schema.keys import MergeFile
from resumerge.recipe.spelling import closest
from resumerge.recipe.yaml_lines import Document, child, descend, nearest_line

SWEEP = "sweep"
VARIANTS = "variants"
PARAMETERS = "parameters"

MOST = 100
"""The largest number of variants of a sweep."""

_STEPS = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(r"[^.\[\]]+(\.[^.\[\]]+|\[\d+\])*")
_KEYS = tuple(field.name for field in fields(MergeFile))
_FIX_OF_PLACE = (
    "Write the path of a value, like 'models[0].parameters.weight', or the name of a parameter, "
    "which is then that of the whole recipe"
)


@dataclass(frozen=True)
class _Place:
    """A place of the recipe whose value differs between variants.

    Args:
        key: the key of the sweep that names the place.
        at: the keys and indices that lead to the place in the recipe.
    """

    key: str
    at: Location


@dataclass(frozen=True)
class _Value:
    """A value of a variant; `written` is its YAML path in the sweep, like ``sweep.t[1]``."""

    place: _Place
    value: Any
    written: str


def variants_of(document: Document, file: str) -> tuple[dict[str, Document], list[Problem]]:
    """Return the documents that a sweep expands to, by the names of their outputs.

    The line of a value from the sweep is its line in the sweep.

    Args:
        document: a document with the key ``sweep``.
        file: the name of the recipe file, for messages.

    Returns:
        the documents, without the key ``sweep``, and the problems of the sweep. If there are
        problems, there are no documents.
    """
    merge_keys = {key: value for key, value in document.data.items() if key != SWEEP}
    try:
        variants = _read(document.data[SWEEP], merge_keys)
        return {
            name: _with_values(document, merge_keys, values) for name, values in variants.items()
        }, []
    except InvalidValue as error:
        return {}, [document.problem(error, file)]


def without_sweep(document: Document) -> Document:
    """Return a document without its sweep."""
    merge_keys = {key: value for key, value in document.data.items() if key != SWEEP}
    return replace(document, data=merge_keys)


def _read(sweep: Any, recipe_data: Mapping[Any, Any]) -> dict[str, list[_Value]]:
    """Return the values of each variant, by the variant's name.

    Raises:
        InvalidValue: the sweep has a mistake, or a recipe of this kind cannot have a sweep.
    """
    for key, reason in ((EXTRACTION, "an adapter is extracted"), ("experts", "a mixture is made")):
        if (key == EXTRACTION and key in recipe_data) or isinstance(recipe_data.get(key), list):
            raise InvalidValue(
                f"There is no sweep where {reason}",
                expected="a recipe that merges",
                found=f"the keys {SWEEP} and {key}",
                fix=f"Delete '{SWEEP}:', and write a recipe for each output",
                at=(SWEEP,),
            )
    if not isinstance(sweep, dict) or not sweep:
        raise InvalidValue(
            "The sweep names no values",
            expected="places of the recipe with a list of values each, or 'variants:'",
            found=describe(sweep),
            fix="Write below 'sweep:' a line like 't: [0.3, 0.5, 0.7]'",
            at=(SWEEP,),
        )
    if VARIANTS not in sweep:
        return _grid(sweep, recipe_data)
    if other_keys := [str(key) for key in sweep if key != VARIANTS]:
        raise InvalidValue(
            "A sweep has either lists of values, or variants",
            expected="one of the two",
            found=f"{VARIANTS}, and {', '.join(other_keys)}",
            fix="Write these values into each variant, or delete 'variants:'",
            at=(SWEEP, other_keys[0]),
        )
    return _explicit(sweep[VARIANTS], recipe_data)


def _grid(sweep: Mapping[Any, Any], recipe_data: Mapping[Any, Any]) -> dict[str, list[_Value]]:
    """Return a variant for each combination of one value from each list."""
    axes: list[list[_Value]] = []
    for key, values in sweep.items():
        place = _place(key, recipe_data, (SWEEP,))
        if not isinstance(values, list) or not values:
            raise InvalidValue(
                f"The sweep has no list of values for {key}",
                expected="a list, with a value for each variant: [0.3, 0.5, 0.7]",
                found=describe(values),
                fix=f"Write '{key}: [first, second]'; a gradient is a list in this list",
                at=(SWEEP, key),
            )
        axis_path = child(SWEEP, key)
        axes.append([_Value(place, value, child(axis_path, n)) for n, value in enumerate(values)])
    if (variant_count := math.prod(map(len, axes))) > MOST:
        raise _too_many(variant_count, " x ".join(str(len(axis)) for axis in axes))
    labels = _labels([axis[0].place for axis in axes])
    variants: dict[str, list[_Value]] = {}
    for values in product(*axes):
        name = "_".join(f"{label}-{_shown(value.value)}" for label, value in zip(labels, values))
        if not is_stage_folder(name):
            raise InvalidValue(
                "The name that the values make is too long for a folder",
                expected="at most 100 characters",
                found=name,
                fix="Name the variants yourself: 'sweep: {variants: {first: {…}, second: {…}}}'",
                at=(SWEEP,),
            )
        _check_new(name, variants, (SWEEP,))
        variants[name] = list(values)
    return variants


def _explicit(variants: Any, recipe_data: Mapping[Any, Any]) -> dict[str, list[_Value]]:
    """Return the variants that are written one by one."""
    location = (SWEEP, VARIANTS)
    if not isinstance(variants, dict) or not variants:
        raise InvalidValue(
            "The variants of the sweep are no mapping of names",
            expected="names of outputs, each with the values that it has",
            found=describe(variants),
            fix="Write 'variants: {mild: {t: 0.3}, strong: {t: 0.7}}'",
            at=location,
        )
    if len(variants) > MOST:
        raise _too_many(len(variants), str(len(variants)))
    values_by_name: dict[str, list[_Value]] = {}
    for name, values in variants.items():
        if not isinstance(name, str) or not is_stage_folder(name) or name.lower() == STAGES:
            raise InvalidValue(
                f"A variant cannot be named {name!r}: its output is a folder of that name",
                expected="letters, digits, '_', '-' and '.', with no '-' or '.' in front; "
                f"at most 100; not '{STAGES}'",
                found=describe(name),
                fix="Give it another name; put a number in quotes",
                at=(*location, str(name)),
            )
        _check_new(name, values_by_name, (*location, name))
        if not isinstance(values, dict):
            raise InvalidValue(
                f"The variant {name!r} is no mapping of places to values",
                expected="{t: 0.3}; or {} for the recipe as it is",
                found=describe(values),
                fix=f"Write '{name}: {{t: 0.3}}'",
                at=(*location, name),
            )
        path_of_variant = descend("", (*location, name))
        values_by_name[name] = [
            _Value(_place(key, recipe_data, (*location, name)), value, child(path_of_variant, key))
            for key, value in values.items()
        ]
    return values_by_name


def _check_new(name: str, named: Mapping[str, Any], at: Location) -> None:
    twin_name = twin_of(name, named)
    if twin_name is not None:
        raise InvalidValue(
            "Two variants of the sweep have the same name"
            + ("" if twin_name == name else ", but for upper and lower case"),
            expected="a name, and so a folder, for each; a value in a list once",
            found=name if twin_name == name else f"{twin_name} and {name}",
            fix="Delete one of the two values; or name the variants yourself, below 'variants:'",
            at=at,
        )


def _too_many(count: int, how: str) -> InvalidValue:
    return InvalidValue(
        f"The sweep has {count} variants",
        expected=f"at most {MOST}, which are computed together",
        found=how,
        fix="Delete values, or make several recipes of it",
        at=(SWEEP,),
    )


def _place(key: Any, recipe_data: Mapping[Any, Any], within: Location) -> _Place:
    """Return the place that a key of the sweep names.

    Raises:
        InvalidValue: the recipe has no such place, or the place holds more than a single value.
    """
    location = (*within, str(key))
    if not isinstance(key, str) or not _PATH.fullmatch(key):
        raise InvalidValue(
            f"{describe(key)} is no place of a recipe",
            expected="the name of a parameter, or a path like models[0].parameters.weight",
            found=describe(key),
            fix=_FIX_OF_PLACE,
            at=location,
        )
    steps: Location = tuple(int(index) if index else name for name, index in _STEPS.findall(key))
    if len(steps) == 1 and key not in _KEYS:
        steps = (PARAMETERS, key)
    section: Any = recipe_data
    for number, step in enumerate(steps[:-1]):
        if isinstance(section, dict) and step == PARAMETERS and section.get(step) is None:
            section = {}  # the parameters are added to the recipe
        elif _has(section, step):
            section = section[step]
        else:
            raise _nowhere(key, descend("", steps[:number]), step, section, location)
    *_, last_step = steps
    if not isinstance(section, dict) or isinstance(last_step, int):
        raise _no_value(key, section, location)
    if PARAMETERS in steps[-2:-1] or (len(steps) == 1 and key not in recipe_data):
        return _Place(key, steps)
    if last_step not in section:
        raise _nowhere(key, descend("", steps[:-1]), last_step, section, location)
    if isinstance(value := section[last_step], dict) or (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    ):
        raise _no_value(key, value, location)
    return _Place(key, steps)


def _has(around: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(around, list) and step < len(around)
    return isinstance(around, dict) and step in around


def _nowhere(key: str, path: str, step: str | int, around: Any, at: Location) -> InvalidValue:
    place_text = path or "the recipe"
    if isinstance(around, dict):
        keys = [str(name) for name in around]
        similar_key = closest(str(step), keys)
        fix = f"Did you mean '{similar_key}'?" if similar_key else _FIX_OF_PLACE
        if isinstance(around, dict) and "model" in around:
            fix = f"Write '{path}.{PARAMETERS}.{step}' for a parameter of this model"
        expected_text = f"a key of {place_text}: {', '.join(keys)}"
    else:
        count = len(around) if isinstance(around, list) else 0
        expected_text = f"one of the {count} entries of {place_text}, counted from [0]"
        fix = _FIX_OF_PLACE
    return InvalidValue(
        f"The sweep names a place that the recipe does not have: {key}",
        expected=expected_text,
        found=f"[{step}]" if isinstance(step, int) else str(step),
        fix=fix,
        at=at,
    )


def _no_value(key: str, found: Any, at: Location) -> InvalidValue:
    return InvalidValue(
        f"The sweep names a place that is more than one value: {key}",
        expected="a number, a text, or a gradient",
        found=describe(found),
        fix="Name the value itself, like 'models[0].parameters.weight'",
        at=at,
    )


def _labels(places: list[_Place]) -> list[str]:
    """Return the label of each place in names: its last key, or its path where keys repeat."""
    counts = Counter(place.at[-1] for place in places)
    return [
        _safe(
            str(place.at[-1])
            if counts[place.at[-1]] == 1
            else "-".join(str(step) for step in place.at if step != PARAMETERS)
        )
        for place in places
    ]


def _shown(value: Any) -> str:
    """Return a value as a part of a folder's name."""
    return _safe("-".join(_words(value)))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif isinstance(value, bool) or value is None:
        yield str(value).lower()
    else:
        yield str(value)


def _safe(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII)


def _with_values(document: Document, rest: Mapping[Any, Any], values: list[_Value]) -> Document:
    data, lines = deepcopy(dict(rest)), dict(document.lines)
    for value in values:
        container: Any = data
        for step in value.place.at[:-1]:
            if step == PARAMETERS and container.get(step) is None:
                container[step] = {}
            container = container[step]
        container[value.place.at[-1]] = value.value
        path = descend("", value.place.at)
        for inner_path in [
            inner_path for inner_path in lines if inner_path.startswith((f"{path}[", f"{path}."))
        ]:
            del lines[inner_path]
        lines[path] = nearest_line(document.lines, value.written) or 1
    return Document(data, lines, document.problems)
