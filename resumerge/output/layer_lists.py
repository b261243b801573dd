"""Lists in config.json that speak of layers, cut and joined as the layers are.

Four forms are told apart by their shape, and by names that speak of layers:

- one entry for each layer: ``layer_types``, ``no_rope_layers``;
- numbers of layers: ``mlp_only_layers``, ``cross_attention_layers``, ``fullatt_block_indexes``;
- entries that repeat over the layers: ``block_types``;
- entries with how often they repeat: ``attention_types: [[["global", "local"], 12]]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_OF_LAYERS = re.compile(r"layer|block|pattern|rope|attention_types|idx|indices|indexes")
_NUMBERS = re.compile(r"(layers|layer_ids?|layer_idx|indices|indexes|idxs?)$")
_KINDS = re.compile(r"types|pattern|layers_block_type")

Origin = tuple[Mapping[str, Any], int]
"""A section of a source's config.json, and the layer of that source."""


def cut_lists(section: dict[str, Any], count: int, origins: Sequence[Origin]) -> None:
    """Change the lists of one section of the output's config.json, in place.

    Args:
        section: the (nested) mapping that holds the layer count.
        count: layers that the reference has, which the section is of.
        origins: where each layer of the output comes from.
    """
    for key, value in section.items():
        if isinstance(value, Mapping) or not isinstance(value, list) or not _OF_LAYERS.search(key):
            continue
        if len(value) == count:
            section[key] = [_entry(own, layer, key, value) for own, layer in origins]
        elif _NUMBERS.search(key) and _are_numbers(value, count):
            section[key] = [
                place
                for place, (own, layer) in enumerate(origins)
                if layer in _list(own, key, value)
            ]
        elif _is_repeated(value):
            kinds = [_unrolled(_list(own, key, value), count)[layer] for own, layer in origins]
            section[key] = [[kinds, 1]]
        elif _KINDS.search(key) and value and all(isinstance(entry, str) for entry in value):
            kinds = [_at(_list(own, key, value), layer) for own, layer in origins]
            if kinds != [_at(value, place) for place in range(len(kinds))]:
                section[key] = kinds


def _entry(own: Mapping[str, Any], layer: int, key: str, default: list[Any]) -> Any:
    return _at(_list(own, key, default), layer)


def _list(own: Mapping[str, Any], key: str, default: list[Any]) -> list[Any]:
    found = own.get(key)
    return found if isinstance(found, list) and found else default


def _at(entries: list[Any], layer: int) -> Any:
    return entries[layer % len(entries)]


def _are_numbers(value: list[Any], count: int) -> bool:
    return all(type(n) is int and 0 <= n < count for n in value) and value == sorted(set(value))


def _is_repeated(value: list[Any]) -> bool:
    return bool(value) and all(
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], list)
        and type(entry[1]) is int
        for entry in value
    )


def _unrolled(value: list[Any], count: int) -> list[Any]:
    kinds = [kind for entry, times in value for _ in range(times) for kind in entry]
    return kinds if len(kinds) >= count else kinds * count
