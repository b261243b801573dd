"""Lists in config.json with an entry for each layer, in the forms that models use.

- one entry for each layer: ``layer_types``, ``no_rope_layers``;
- numbers of layers: ``mlp_only_layers``, ``cross_attention_layers``, ``fullatt_block_indexes``;
- entries that repeat over the layers: ``block_types``;
- entries with how often they repeat: ``attention_types: [[["global", "local"], 12]]``.

The form follows from the shape of the list and the words of its key.
"""

from __future__ import annotations

import re
from typing import Any

_OF_LAYERS = re.compile(r"layer|block|pattern|rope|attention_types|idx|indices|indexes")
_NUMBERS = re.compile(r"(layers|layer_ids?|layer_idx|indices|indexes|idxs?)$")
_KINDS = re.compile(r"types?$|pattern")


def read_layer_list(key: str, value: Any, count: int) -> list[Any] | None:
    """Return the entry of each of `count` layers; None if the list is not about layers."""
    if not isinstance(value, list) or not _OF_LAYERS.search(key):
        return None
    if len(value) == count:
        return value
    if _NUMBERS.search(key) and _are_numbers(value, count):
        return [layer in value for layer in range(count)]
    if _is_repeated(value):
        if sum(len(entry) * times for entry, times in value) != count:
            return None
        return [kind for entry, times in value for _ in range(times) for kind in entry]
    if _KINDS.search(key) and value and all(isinstance(entry, str) for entry in value):
        return _cycle(value, count)
    return None


def write_layer_list(key: str, like: list[Any], count: int, entries: list[Any]) -> list[Any]:
    """Return a list with the entries of `count` layers, in the form that the list `like` has."""
    if len(like) == count:
        return entries
    if _NUMBERS.search(key) and _are_numbers(like, count):
        return [layer for layer, said in enumerate(entries) if said]
    if _is_repeated(like):
        return [[entries, 1]]
    return like if _cycle(like, len(entries)) == entries else entries


def _cycle(entries: list[Any], count: int) -> list[Any]:
    return [entries[layer % len(entries)] for layer in range(count)]


def _are_numbers(value: list[Any], count: int) -> bool:
    return all(type(n) is int and 0 <= n < count for n in value) and value == sorted(set(value))


def _is_repeated(value: list[Any]) -> bool:
    return bool(value) and all(
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], list)
        and type(entry[1]) is int
        and entry[1] >= 0
        for entry in value
    )
