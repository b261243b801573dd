"""What a value from an untrusted ledger may be."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from resumerge.options import are_kept_options

LARGEST = 1 << 62

Validator = Callable[[Any], bool]
"""Whether a value may be imported."""


def text(most: int = 4096) -> Validator:
    """Text of at most so many characters."""
    return lambda value: isinstance(value, str) and len(value) <= most


def like(pattern: str) -> Validator:
    """Text that matches a regular expression from its first to its last character."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def integer(least: int = 0) -> Validator:
    """An integer of at least this much."""
    return lambda value: isinstance(value, int) and least <= value <= LARGEST


def or_null(validator: Validator) -> Validator:
    """Null, or what the other validator accepts."""
    return lambda value: value is None or validator(value)


def seconds(value: Any) -> bool:
    """A duration."""
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value < 1e12


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


def shape(value: Any) -> bool:
    """JSON that is a list of sizes."""
    sizes = _decoded(value)
    return isinstance(sizes, list) and all(isinstance(n, int) and n >= 0 for n in sizes)


def options(value: Any) -> bool:
    """JSON of the options that a run was started with, as far as resuming reads them."""
    kept = _decoded(value)
    return isinstance(kept, dict) and are_kept_options(kept)


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
