"""Changes of the data of JSON and YAML: another type, a huge number, a repeated key."""

from __future__ import annotations

import copy
import json
import math
import re
from random import Random
from typing import Any

from fuzz.changes.raw import changed_bytes

DEEP, LONG_NUMBER, TWICE = "deepdeepdeep", "numbernumber", "twicetwice"
"""Placeholders in the data for what only text can express; the text has that instead."""

NUMBERS = (
    *(0, -1, 1, 2, 3, 7, 255, 1000, 2**24 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63)),
    *(2**64, 10**30, 0.5, 1.5, -0.0, 1e-45, 1e308, math.nan, math.inf, -math.inf),
)
TEXTS = (
    *("", " ", "\0", "\n", "\ud800", "\x1b[31m", "💥", "none", "nan", "1e5", "-1", "true", "auto"),
    *("..", "../../x", "/", "/dev/zero", "a/b", "~", "a" * 300, "é" * 70_000, "{{ x }}", "(" * 99),
)
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], [{}], {"": None}, [0, -1])


def changed_json(draw: Random, data: Any) -> bytes:
    """Return data as JSON with a few changes, now and then also changes of its text."""
    return _as_text(draw, json.dumps(changed(draw, data), ensure_ascii=draw.random() < 0.8))


def changed(draw: Random, data: Any) -> Any:
    """Return a copy of data with one to three changes."""
    data = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        data = _changed_once(draw, data)
    return data


def with_oddities(text: str) -> str:
    """Replace the placeholders in the text of data."""
    text = text.replace(TWICE, "")
    text = re.sub(f"[\"']?{LONG_NUMBER}[\"']?", "9" * 5000, text)
    depth = 100_000
    return re.sub(f"[\"']?{DEEP}[\"']?", lambda match: "[" * depth + "]" * depth, text)


def _as_text(draw: Random, text: str) -> bytes:
    data = with_oddities(text).encode("utf-8", "surrogatepass")
    return changed_bytes(draw, data) if draw.random() < 0.1 else data


def _changed_once(draw: Random, data: Any) -> Any:
    container, key = _place(draw, data)
    if container is None:
        return _other(draw, data, data)
    match draw.randrange(8):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[_other_key(draw, data, key)] = container.pop(key)
        case 2 if isinstance(container, dict):
            container[f"{key}{TWICE}"] = _other(draw, data, container[key])
        case 3 if isinstance(container, list):
            container[key:key] = [container[key]] * draw.choice((1, 2, 50))
        case _:
            container[key] = _other(draw, data, container[key])
    return data


def _place(draw: Random, data: Any) -> tuple[Any, Any]:
    """Return a container in the data and one of its keys; (None, None) for the data itself."""
    container = key = None
    while isinstance(data, dict | list) and data and (container is None or draw.random() < 0.75):
        container = data
        key = draw.choice(list(data)) if isinstance(data, dict) else draw.randrange(len(data))
        data = data[key]
    return (container, key) if draw.random() < 0.99 else (None, None)


def _other_key(draw: Random, data: Any, key: str) -> str:
    match draw.randrange(4):
        case 0:
            return str(_place(draw, data)[1])
        case 1:
            return str(draw.choice(NUMBERS))
        case 2:
            return str(key) + draw.choice(("s", " ", "0", "é"))
    return draw.choice(TEXTS)


def _other(draw: Random, data: Any, value: Any) -> Any:
    """Return what replaces a value."""
    match draw.randrange(9):
        case 0:
            return draw.choice(([value], {"x": value}, [value] * 50, {str(value)[:20]: value}))
        case 1:
            return draw.choice((DEEP, LONG_NUMBER))
        case 2:
            container, key = _place(draw, data)
            return copy.deepcopy(data if container is None else container[key])
        case 3 if type(value) in (int, float):
            return draw.choice((value + 1, value - 1, -value, value * 2**20, value + 0.5))
        case 3 | 4 if not isinstance(value, dict | list):
            return draw.choice((str(value), str(value) * 2, str(value)[:-1]))
        case 5:
            return draw.choice(NUMBERS)
        case 6:
            return draw.choice(TEXTS)
    return copy.deepcopy(draw.choice(SHAPES))
