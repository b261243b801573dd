"""YAML paths: keys joined by dots, list indices in brackets, like ``slices[0].sources[1]``.

The empty path is the whole document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def child(path: str, key: str | int) -> str:
    """The path of an entry of a list (by index) or of a mapping (by key)."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def descend(path: str, keys: Iterable[str | int]) -> str:
    """The path that is reached from `path` by several keys and indices."""
    for key in keys:
        path = child(path, key)
    return path


def nearest_line(lines: Mapping[str, int], path: str) -> int | None:
    """The line of a path, or of its nearest parent that has a line; None if none has."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path)
