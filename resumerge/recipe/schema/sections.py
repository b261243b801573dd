"""The readers of a document's sections: mappings with known keys, lists of these, single values.

All errors of a document are collected in one pass, each with its full location.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

from resumerge.recipe.invalid import Findings, InvalidValue, Location, describe
from resumerge.recipe.spelling import abbreviated, closest, correction, misspelled

LAYER_RANGE = "layer_range"
_ADAPTER_KEYS = frozenset({"adapter", "adapter_path", "lora", "lora_path", "peft"})
_NO_COMMENTS = _ADAPTER_KEYS | {LAYER_RANGE}
"""The keys that are errors in sections without them, where other unknown keys are ignored.

Their author expects layers or an adapter. mergekit ignores such a key silently.
"""

Reader = Callable[[Any, Location, Findings], Any]
"""A function that reads the value at a location and appends the value's errors to `Findings`.

If it appended an error, its result must not be used.
"""


class Section(Protocol):
    """A dataclass whose fields have the metadata of `key` or `required_key`.

    Attributes:
        where: the kind of place that such a section has, for messages, like ``in a slice``.
    """

    where: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


AnySection = TypeVar("AnySection", bound=Section)


def key(reader: Reader) -> dict[str, Any]:
    """Return the metadata of a field that is an optional key of a section."""
    return {"reader": reader}


def required_key(reader: Reader, *, expected: str, fix: str) -> dict[str, Any]:
    """Return the metadata of a field that is a required key of a section.

    Args:
        reader: the reader of the key's value. It is not called if the key is missing.
        expected: the meaning of the key, for the message that the key is missing.
        fix: advice for that message: the line to add.
    """
    return {"reader": reader, "expected": expected, "fix": fix}


def read_section(
    section: type[AnySection], value: Any, at: Location, errors: Findings
) -> AnySection | None:
    """Read a mapping with the keys of a section.

    A misspelled or abbreviated key is an error. If the key is required, it is not reported as
    missing, too. A key of `_NO_COMMENTS` is an error in a section without this key. Any other
    unknown key is ignored.

    Args:
        section: the dataclass to return, whose fields are the known keys.
        value: the YAML value, which should be a mapping.
        at: the location of the value in the document.
        errors: receives the errors, and the locations of ignored keys.

    Returns:
        the section; None if it contains an error.
    """
    if not isinstance(value, dict):
        fix = "Write 'key: value' lines, indented"
        if isinstance(value, str) and at[-2:-1] in (("models",), ("sources",)):
            fix = f"Write '- model: {value}'"
        errors.append(_wrong_shape("a mapping", fix, value, at))
        return None
    errors_before = len(errors)
    fields = {field.name: field for field in dataclasses.fields(section)}
    unknown_names = [str(name) for name in value if name not in fields]
    required_names = [name for name, field in fields.items() if "expected" in field.metadata]
    absent_names = [name for name in required_names if name not in value]
    meant_fields = {
        name: misspelled(name, fields) or closest(name, absent_names) or abbreviated(name, fields)
        for name in unknown_names
    }
    values = {}
    for name, field in fields.items():
        if name in value:
            values[name] = field.metadata["reader"](value[name], (*at, name), errors)
        elif name in absent_names and name not in meant_fields.values():
            errors.append(_missing_key(field, at))
    for name, meant_name in meant_fields.items():
        if meant_name is not None or name in _NO_COMMENTS:
            errors.append(_unknown_key(name, meant_name, section.where, fields, at))
        else:
            errors.ignored.append((*at, name))
    return section(**values) if len(errors) == errors_before else None


def value_of(read: Callable[[Any], Any]) -> Reader:
    """Return a reader of one value from a function that may raise `InvalidValue`."""

    def reader(value: Any, at: Location, errors: Findings) -> Any:
        try:
            return read(value)
        except InvalidValue as error:
            error.at = (*at, *error.at)
            errors.append(error)

    return reader


def section_of(section: type[Section]) -> Reader:
    """Return a reader of a section, by `read_section`."""
    return lambda value, at, errors: read_section(section, value, at, errors)


def list_of(entry: Reader, check: Callable[[list[Any]], Any] | None = None) -> Reader:
    """Return a reader of a list.

    Args:
        entry: the reader of one entry, which gets the location of that entry.
        check: checks the entries, if all of them are valid; may raise `InvalidValue`.
    """

    def reader(value: Any, at: Location, errors: Findings) -> Any:
        if not isinstance(value, list):
            errors.append(_wrong_shape("a list", "Begin each entry with '- '", value, at))
            return []
        errors_before = len(errors)
        entries = [entry(item, (*at, index), errors) for index, item in enumerate(value)]
        if check is not None and len(errors) == errors_before:
            value_of(check)(entries, at, errors)
        return entries

    return reader


def mapping_of(entry: Reader) -> Reader:
    """Return a reader of a mapping with names of the user's choice as keys."""

    def reader(value: Any, at: Location, errors: Findings) -> Any:
        if not isinstance(value, dict):
            fix = "Write 'key: value' lines, indented"
            errors.append(_wrong_shape("a mapping", fix, value, at))
            return {}
        entries = {}
        for name, item in value.items():
            if item is None and (message_parts := _broken_entry(name)):
                errors.append(_not_an_entry(name, *message_parts, at))
                continue
            if not isinstance(name, str):
                errors.append(_wrong_shape("text", "Put it in quotes", name, (*at, str(name))))
            entries[name] = entry(item, (*at, str(name)), errors)
        return entries

    return reader


def optional(reader: Reader) -> Reader:
    """Return a reader of a value that may be null."""
    return lambda value, at, errors: None if value is None else reader(value, at, errors)


def _wrong_shape(expected: str, fix: str, value: Any, at: Location) -> InvalidValue:
    name = at[-1] if at else "recipe"
    subject = f"An entry of '{at[-2]}'" if isinstance(name, int) else f"'{name}'"
    return InvalidValue(
        f"{subject} is not {expected}", expected=expected, found=describe(value), fix=fix, at=at
    )


def _broken_entry(name: Any) -> tuple[str, str] | None:
    """Return (expected, fix) for a key without a value that was meant to be a key with its value.

    The result is None for any other key.
    """
    if isinstance(name, int):
        return "a point in a decimal number", "Write numbers like 0.5: a comma begins a new entry"
    key, colon, value = str(name).partition(":")
    if colon:
        return f"{key}: {value}", f"Write '{key}: {value}', with a space after the colon"
    key, space, value = str(name).partition(" ")
    if space:
        return f"{key}: {value}", f"Write '{key}: {value}', with a colon after the name"
    return None


def _not_an_entry(name: Any, expected: str, fix: str, at: Location) -> InvalidValue:
    return InvalidValue(
        f"'{name}' is an entry without a value",
        expected=expected,
        found=f"'{name}' alone",
        fix=fix,
        at=(*at, str(name)),
    )


def _missing_key(field: dataclasses.Field[Any], at: Location) -> InvalidValue:
    return InvalidValue(
        f"The key '{field.name}' is missing",
        expected=field.metadata["expected"],
        found="no such key",
        fix=field.metadata["fix"],
        at=(*at, field.name),
    )


def _unknown_key(
    name: str, meant: str | None, where: str, known: Iterable[str], at: Location
) -> InvalidValue:
    if meant:
        fix = correction(name, meant) or f"Did you mean '{meant}'? Rename the key"
        fix += ", or delete the line, which mergekit ignores"
    elif name in _ADAPTER_KEYS:
        fix = (
            "Write the adapter after its model, with a plus: 'model: org/name+org/adapter'; "
            "mergekit ignores this line"
        )
    elif "sources" in known:
        fix = "Write it in an entry of this slice's 'sources:', beside 'model:'"
    else:
        fix = (
            "Models in 'models:' are merged whole, and mergekit ignores this line: delete it, "
            "or write 'slices:' with 'sources:' to choose layers"
        )
    return InvalidValue(
        f"Unknown key '{name}' {where}",
        expected=", ".join(known),
        found=name,
        fix=fix,
        at=(*at, name),
    )
