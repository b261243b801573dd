"""What a value of a ledger may be."""

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
"""An exabyte: what is added up of a few such numbers is still an integer of SQLite."""

MOST_SECONDS = 1e12
_NUMBERS, _LISTS = frozenset({"after", "before", "damage", "seconds"}), frozenset({"models"})
"""Names in the data of events that something is computed from."""
_LONGEST_SHAPE, _LONGEST_PATH = 1000, 4096
"""Characters."""

SOURCE = "source "
"""Prefix of a source's name in the parts of a fingerprint."""

Validator = Callable[[Any], bool]
"""Whether a value may be in a column."""


def text(most: int = 4096) -> Validator:
    """Text of at most so many characters."""
    return lambda value: isinstance(value, str) and len(value) <= most


def path(value: Any) -> bool:
    """Text that the system accepts as a path, whether it leads somewhere or not."""
    return isinstance(value, str) and len(value) <= _LONGEST_PATH and "\0" not in value


def like(pattern: str) -> Validator:
    """Text that matches a regular expression from its first to its last character."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def shard_name(value: Any) -> bool:
    """The name of a shard; where the output is one file, the name that the user gave it."""
    if not isinstance(value, str):
        return False
    return is_shard_name(value) or (is_output_name(value) and is_weights(value))


def integer(least: int = 0) -> Validator:
    """An integer of at least this much."""
    return lambda value: isinstance(value, int) and least <= value <= LARGEST


def or_null(validator: Validator) -> Validator:
    """Null, or what the other validator accepts."""
    return lambda value: value is None or validator(value)


def seconds(value: Any) -> bool:
    """A duration."""
    return isinstance(value, (int, float)) and 0 <= value <= MOST_SECONDS


def time(value: Any) -> bool:
    """ISO 8601, with a time zone."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def hashes(value: Any) -> bool:
    """Bytes, or null."""
    return value is None or isinstance(value, bytes)


def json_object(value: Any) -> bool:
    """JSON that is an object."""
    return isinstance(_decoded(value), dict)


def fingerprint_parts(value: Any) -> bool:
    """JSON of the parts of a fingerprint: of each source, the facts of its files by name."""
    parts = _decoded(value)
    return isinstance(parts, dict) and all(
        isinstance(part, dict)
        and isinstance(files := part.get("files"), dict)
        and all(isinstance(facts, dict) for facts in files.values())
        for key, part in parts.items()
        if key.startswith(SOURCE)
    )


def source_identity(value: Any) -> bool:
    """JSON of the facts that pin a source, those of its files by name."""
    facts = _decoded(value)
    return isinstance(facts, dict) and isinstance(facts.get("files", {}), dict)


def event_data(value: Any) -> bool:
    """JSON of an event: an object in which certain names are numbers or lists of text."""
    data = _decoded(value)
    return (
        isinstance(data, dict)
        and all(type(data.get(name, 0)) in (int, float, type(None)) for name in _NUMBERS)
        and all(isinstance(data.get(name, []), list) for name in _LISTS)
        and all(isinstance(item, str) for name in _LISTS for item in data.get(name, []))
    )


def shape(value: Any) -> bool:
    """JSON that is a list of sizes."""
    sizes = _decoded(value) if isinstance(value, str) and len(value) <= _LONGEST_SHAPE else None
    return isinstance(sizes, list) and all(type(n) is int and 0 <= n <= LARGEST for n in sizes)


def options(value: Any) -> bool:
    """JSON of the options that a run was started with, as far as resuming reads them."""
    kept = _decoded(value)
    return isinstance(kept, dict) and are_kept_options(kept)


OF_TYPE: dict[type, Validator] = {
    int: lambda value: value is None or type(value) is int,
    float: or_null(seconds),
    str: or_null(text(1 << 24)),
    bytes: hashes,
}
"""By the type of a column that has no other validator."""


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
