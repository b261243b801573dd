"""The validators of values in a ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from resumerge.ledger.file_names import is_output_name
from resumerge.options import are_kept_options
from resumerge.output_path import is_shard_name, is_weights

LARGEST = 1 << 60
"""The largest accepted integer, an exabyte. A sum of a few still fits an integer of SQLite."""

MOST_SECONDS = 1e12
_NUMBERS = frozenset({"after", "before", "bytes", "damage", "peak_rss", "requests", "seconds"})
_LISTS = frozenset({"models"})
"""The facts of events that the program computes with: names of numbers, and of lists of text."""
_LONGEST_SHAPE, _LONGEST_PATH = 1000, 4096
"""The most characters of a shape, and of a path."""

SOURCE = "source "
"""The prefix of a fingerprint part's key if the part pins a source; the source's name follows."""

Validator = Callable[[Any], bool]
"""A function that returns whether a value is valid in a column."""


def text(most: int = 4096) -> Validator:
    """Return a validator of text with at most `most` characters."""
    return lambda value: isinstance(value, str) and len(value) <= most


def path(value: Any) -> bool:
    """Return whether a value is text that the system accepts as a path, existing or not."""
    return isinstance(value, str) and len(value) <= _LONGEST_PATH and "\0" not in value


def like(pattern: str) -> Validator:
    """Return a validator of text that fully matches a regular expression."""
    compiled_pattern = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled_pattern.fullmatch(value) is not None


def weights_name(value: Any) -> bool:
    """Return whether a value is the name of a shard, or a safe name of a weight file."""
    if not isinstance(value, str):
        return False
    return is_shard_name(value) or (is_output_name(value) and is_weights(value))


def integer(least: int = 0) -> Validator:
    """Return a validator of integers from `least` to `LARGEST`."""
    return lambda value: isinstance(value, int) and least <= value <= LARGEST


def or_null(validator: Validator) -> Validator:
    """Return a validator that also accepts null."""
    return lambda value: value is None or validator(value)


def seconds(value: Any) -> bool:
    """Return whether a value is a duration in seconds."""
    return isinstance(value, (int, float)) and 0 <= value <= MOST_SECONDS


def time(value: Any) -> bool:
    """Return whether a value is a time in ISO 8601, with a time zone."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def hashes(value: Any) -> bool:
    """Return whether a value is bytes, or null."""
    return value is None or isinstance(value, bytes)


def mapping(value: Any) -> bool:
    """Return whether a value is the JSON of an object."""
    return isinstance(_decoded(value), dict)


def parts_of_fingerprint(value: Any) -> bool:
    """Return whether a value is the JSON of a fingerprint's parts.

    Each part of a source has an object ``files``, with the facts of each file as an object.
    """
    parts = _decoded(value)
    return isinstance(parts, dict) and all(
        isinstance(part, dict)
        and isinstance(files := part.get("files"), dict)
        and all(isinstance(facts, dict) for facts in files.values())
        for key, part in parts.items()
        if key.startswith(SOURCE)
    )


def source_identity(value: Any) -> bool:
    """Return whether a value is the JSON of the facts that pin a source and its files."""
    facts = _decoded(value)
    return isinstance(facts, dict) and isinstance(facts.get("files", {}), dict)


def event_data(value: Any) -> bool:
    """Return whether a value is the JSON of an event's facts.

    Facts that the program computes with have to be numbers, null, or lists of text.
    """
    data = _decoded(value)
    return (
        isinstance(data, dict)
        and all(type(data.get(name, 0)) in (int, float, type(None)) for name in _NUMBERS)
        and all(isinstance(data.get(name, []), list) for name in _LISTS)
        and all(isinstance(item, str) for name in _LISTS for item in data.get(name, []))
    )


def shape(value: Any) -> bool:
    """Return whether a value is the JSON of a list of sizes."""
    sizes = _decoded(value) if isinstance(value, str) and len(value) <= _LONGEST_SHAPE else None
    return isinstance(sizes, list) and all(type(n) is int and 0 <= n <= LARGEST for n in sizes)


def names(value: Any) -> bool:
    """Return whether a value is the JSON of a list of names."""
    decoded_names = _decoded(value)
    return isinstance(decoded_names, list) and all(isinstance(name, str) for name in decoded_names)


def options(value: Any) -> bool:
    """Return whether a value is the JSON of options that a resumed run can inherit."""
    kept_options = _decoded(value)
    return isinstance(kept_options, dict) and are_kept_options(kept_options)


OF_TYPE: dict[type, Validator] = {
    int: lambda value: value is None or type(value) is int,
    float: or_null(seconds),
    str: or_null(text(1 << 24)),
    bytes: hashes,
}
"""The default validators of columns, by the column's type. They accept null."""


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
