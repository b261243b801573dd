"""Reads JSON files of a source within limits of size, depth and number of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from resumerge.foreign_files import placeholder_kind, read_foreign

DEEPEST = 100
"""The most levels of nested objects and lists. The files of models have fewer than ten."""

LARGEST_CONFIG = 16 << 20
"""The largest config, in bytes. The labels of 100,000 classes have a third of this size."""

MOST_VALUES = 4_000_000
"""The most values in a file. A value takes up to 70 bytes of memory.

Large tokenizers have half as many values as this.
"""


def read_json_object(path: Path, most: int = LARGEST_CONFIG) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Args:
        path: the file, which is not trusted: of any kind, size and content.
        most: the largest size of the file, in bytes.

    Raises:
        ValueError: the file is larger than `most` or not a regular file, or as for `json_object`.
        OSError: the file cannot be read.
    """
    return json_object(read_foreign(path, most))


def check_value_count(raw: bytes) -> None:
    """Check that JSON has at most `MOST_VALUES` values, without parsing it.

    Raises:
        ValueError: the JSON may have more values.
    """
    if sum(map(raw.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse JSON whose top value is an object.

    Raises:
        ValueError: the bytes are a Git LFS pointer or an HTML page; are not UTF-8, not JSON or not
            an object; are nested too deeply; or have too many values.
    """
    if (stand_in_text := placeholder_kind(raw)) is not None:
        raise ValueError(stand_in_text[0])
    check_value_count(raw)
    try:
        document = json.loads(raw.decode())
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None
    if not isinstance(document, dict):
        raise ValueError(f"a {type(document).__name__}, not an object")
    level: list[Any] = [document]
    for _ in range(DEEPEST):
        level = [
            inner_value
            for value in level
            for inner_value in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner_value, dict | list)
        ]
    if level:
        raise ValueError(f"more than {DEEPEST} levels")
    return document
