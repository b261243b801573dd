"""Reading a YAML value level by level: keys that are known, lists, mappings, each with its faults.

All faults of a document are found at once. Not by pydantic: its import took a quarter of the time
of a small merge, for five levels whose values functions of ours read anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from resumerge.recipe.invalid import InvalidValue

Location = tuple[str | int, ...]

Kind = Literal["missing", "unknown", "list", "mapping", "text", "unfit"]


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something wrong in one place.

    Args:
        kind: a key that is missing or unknown; a value that is no list, no mapping, or (a key) no
            text; or what `unfit` says.
        place: the keys and indices that lead there.
        value: what stands there.
    """

    kind: Kind
    place: Location
    value: Any = None
    unfit: InvalidValue | None = None


Reader = Callable[[Any, Location, list[Fault]], Any]
"""Reads the value at a place; what is wrong with it is added to the faults, and then what is
returned means nothing."""

Level = TypeVar("Level")


def by(reader: Reader) -> dict[str, Any]:
    """For the metadata of a level's field, whose name is the key: what reads its value."""
    return {"reader": reader}


def keys(level: type[Any]) -> list[str]:
    """The keys of a level."""
    return [field.name for field in dataclasses.fields(level)]


def read_level(level: type[Level], value: Any, place: Location, faults: list[Fault]) -> Level:
    """A mapping with the keys of a level, a dataclass, and no others."""
    found: dict[str, Any] = {}
    if not isinstance(value, dict):
        faults.append(Fault("mapping", place, value))
        return level.__new__(level)
    before = len(faults)
    for field in dataclasses.fields(level):  # type: ignore[arg-type]
        at = (*place, field.name)
        if field.name in value:
            found[field.name] = field.metadata["reader"](value[field.name], at, faults)
        elif field.default is field.default_factory is dataclasses.MISSING:
            faults.append(Fault("missing", at))
    known = keys(level)
    faults += [Fault("unknown", (*place, str(name))) for name in value if name not in known]
    return level(**found) if len(faults) == before else level.__new__(level)


def value_by(read: Callable[[Any], Any]) -> Reader:
    """One value, read by a function that raises `InvalidValue`."""

    def reader(value: Any, place: Location, faults: list[Fault]) -> Any:
        try:
            return read(value)
        except InvalidValue as unfit:
            faults.append(Fault("unfit", place, value, unfit))

    return reader


def entry_of(level: type[Any]) -> Reader:
    """A level."""
    return lambda value, place, faults: read_level(level, value, place, faults)


def list_of(entry: Reader, check: Callable[[list[Any]], Any] | None = None) -> Reader:
    """A list.

    Args:
        check: is given the entries where they are as they should be; may raise `InvalidValue`.
    """

    def reader(value: Any, place: Location, faults: list[Fault]) -> Any:
        if not isinstance(value, list):
            faults.append(Fault("list", place, value))
            return []
        before = len(faults)
        entries = [entry(item, (*place, index), faults) for index, item in enumerate(value)]
        if check is not None and len(faults) == before:
            value_by(check)(entries, place, faults)
        return entries

    return reader


def mapping_of(entry: Reader) -> Reader:
    """A mapping from any names."""

    def reader(value: Any, place: Location, faults: list[Fault]) -> Any:
        if not isinstance(value, dict):
            faults.append(Fault("mapping", place, value))
            return {}
        found = {}
        for name, item in value.items():
            if not isinstance(name, str):
                faults.append(Fault("text", (*place, str(name)), name))
            found[name] = entry(item, (*place, str(name)), faults)
        return found

    return reader


def optional(reader: Reader) -> Reader:
    """What `reader` reads, or nothing (null)."""
    return lambda value, at, faults: None if value is None else reader(value, at, faults)
