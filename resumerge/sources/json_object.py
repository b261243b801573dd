"""JSON files of a source, with limited depth, so that they can be walked and written again."""

from __future__ import annotations

import json
from typing import Any

DEEPEST = 100
"""Levels of nested objects and lists; models' files have fewer than ten."""


def json_object(raw: bytes) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: not UTF-8, not JSON, not an object, or nested too deeply.
    """
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
