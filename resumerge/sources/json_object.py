"""JSON files of a source, with limits, so that they can be read, walked and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from resumerge.foreign_files import read_foreign, stand_in

DEEPEST = 100
"""The most levels of nested objects and lists; models' files have fewer than ten."""

LARGEST_CONFIG = 16 << 20
"""The largest config, in bytes. Labels of a hundred thousand classes take a third of it."""

MOST_VALUES = 4_000_000
"""The most values in a file, up to 70 bytes of memory each. Large tokenizers have half of it."""


def read_json_object(path: Path, most: int = LARGEST_CONFIG) -> dict[str, Any]:
    """Return the object in a JSON file.

    Args:
        path: the file.
        most: the largest size of the file, in bytes.

    Raises:
        ValueError: the file is larger or no regular file, or as for `json_object`.
        OSError: the file cannot be read.
    """
    return json_object(read_foreign(path, most))


def check_value_count(raw: bytes) -> None:
    """Check that JSON has no more than `MOST_VALUES` values, before it is parsed.

    Raises:
        ValueError: the JSON may have more.
    """
    if sum(map(raw.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")


def json_object(raw: bytes) -> dict[str, Any]:
    """Return the object in JSON.

    Raises:
        ValueError: a Git LFS pointer or a page, not UTF-8, not JSON, not an object, nested too
            deeply, or of too many values.
    """
    if (other := stand_in(raw)) is not None:
        raise ValueError(other[0])
    check_value_count(raw)
    try:
        found = json.loads(raw.decode())
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}, not an object")
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(f"more than {DEEPEST} levels")
    return found
