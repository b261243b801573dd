"""Settings in config.json with an entry for each layer, in the forms that models use.

- one entry for each layer: ``layer_types``, ``no_rope_layers``;
- numbers of layers: ``mlp_only_layers``, ``cross_attention_layers``, ``fullatt_block_indexes``;
- entries that repeat over the layers: ``block_types``;
- entries with their number of repetitions: ``attention_types: [[["global", "local"], 12]]``;
- a letter for each layer: ``hybrid_override_pattern: "M-M*"``;
- a mapping from numbers of layers: ``per_layer_config: {"5": {"head_dim": 512}}``.

The form follows from the shape of the value and the words of its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_OF_LAYERS = re.compile(r"layer|block|pattern|rope|attention_types|idx|indices|indexes")
_OF_OTHERS = re.compile(
    r"mtp|out_indices|target_layer|summary|proj|token|architectures|section|multipliers|limit$|mean|std|shape|label|conv|tdnn|kernel|stride"
    r"|patch|image|dilation|upsampl|lang|factors|aspect|channels|features|stage|grid|cardinality"
)
"""Words in the keys of lists that are not about layers, even if the lists have their length."""
_NUMBERS = re.compile(r"(?<!no_rope_)(layers|layer_ids?|layer_idx|indices|indexes|idxs?)$")
_KINDS = re.compile(r"types?$|pattern")
_LETTERS = re.compile(r"[A-Z*-]+")


def read_layer_list(key: str, value: Any, count: int) -> list[Any] | None:
    """Return the entry of each of `count` layers; None if the value is not about layers."""
    if _OF_OTHERS.search(key):
        return None
    if isinstance(value, str):
        return _of_letters(key, value, count)
    if isinstance(value, Mapping):
        return _by_number(key, value, count)
    if not isinstance(value, list | tuple):
        return None
    return _of_entries(key, list(value), count)


def write_layer_list(key: str, like: Any, count: int, entries: list[Any]) -> Any:
    """Return the value of a setting with these entries, one for each layer.

    Args:
        key: the setting's key, whose words tell lists of layer numbers from lists of entries.
        like: a value of the same setting, whose form is used.
        count: the number of layers that `like` is for.
        entries: the entry of each layer.
    """
    if isinstance(like, str):
        return "".join(entries)
    if isinstance(like, Mapping):
        return {str(layer): entry for layer, entry in enumerate(entries) if entry is not None}
    if _NUMBERS.search(key) and _are_numbers(list(like), count):
        return [layer for layer, is_listed in enumerate(entries) if is_listed]
    if len(like) == count:
        return entries
    if _is_repeated(like):
        return [[entries, 1]]
    return like if _cycle(like, len(entries)) == entries else entries


def _of_entries(key: str, value: list[Any], count: int) -> list[Any] | None:
    if _NUMBERS.search(key) and _are_numbers(value, count):
        return [layer in value for layer in range(count)]
    if len(value) == count > 1 or (len(value) == count and _OF_LAYERS.search(key)):
        return value
    if not _OF_LAYERS.search(key):
        return None
    if _is_repeated(value):
        if sum(len(entry) * repetitions for entry, repetitions in value) != count:
            return None
        return [kind for entry, repetitions in value for _ in range(repetitions) for kind in entry]
    if _KINDS.search(key) and value and all(isinstance(entry, str) for entry in value):
        return _cycle(value, count)
    return None


def _of_letters(key: str, value: str, count: int) -> list[str] | None:
    if len(value) == count and _KINDS.search(key) and _LETTERS.fullmatch(value):
        return list(value)
    return None


def _by_number(key: str, value: Mapping[Any, Any], count: int) -> list[Any] | None:
    if not value or not _OF_LAYERS.search(key):
        return None
    if not all(str(name).isdecimal() and int(name) < count for name in value):
        return None
    entries = {int(name): entry for name, entry in value.items()}  # transformers writes "07" too
    return [entries.get(layer) for layer in range(count)]


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
