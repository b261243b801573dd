"""The type of rules, and functions that make rules of common patterns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.layout.layer_lists import read_layer_list

Section = Mapping[str, Any]
Entries = list[Any]
Derive = Callable[[Section, int], Entries]

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
INDEXED, HYBRID = "indexed_attention", "hybrid"


class LayerNumber(int):
    """An entry that names another layer of the same model."""


@dataclass(frozen=True)
class Rule:
    """A setting of each layer that follows from the layer's number.

    Args:
        name: the setting's name: the key that lists its entries, or words if there is no such key.
        read: returns the entries of a number of layers from the section with the layer count.
        write: returns the keys that state given entries, with their values; empty if no key can
            state them.
        keys: the keys of config.json from which the entries are derived.
    """

    name: str
    read: Derive
    write: Callable[[Section, Entries], Mapping[str, Any]]
    keys: tuple[str, ...] = ()

    def entries(self, section: Section, count: int) -> Entries | None:
        """Return the entries of `count` layers; None if the class could not read config.json."""
        try:
            entries = self.read(section, count)
        except (TypeError, ValueError, AttributeError, LookupError):
            return None
        return entries if len(entries) == count else None


RULES: dict[Any, list[Rule]] = defaultdict(list)
"""The rules of each model type."""


def add_rules(types: str, *rules: Rule) -> None:
    """Add rules to one or several model types, whose names are separated by spaces."""
    for name in types.split():
        RULES[name] += rules


def unwritten(section: Section, entries: Entries) -> Mapping[str, Any]:
    """Return no keys, because no key can state the entries."""
    return {}


def rule_of_list(key: str, derive: Derive, *keys: str) -> Rule:
    """Return the rule of a setting that a list may state. Without the list, it is derived."""

    def read(section: Section, count: int) -> Entries:
        stated_entries = read_layer_list(key, section.get(key), count) if section.get(key) else None
        return list(stated_entries) if stated_entries is not None else derive(section, count)

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        return {key: entries}

    return Rule(key, read, write, keys)


def rule_of_numbers(key: str, derive: Derive, *keys: str) -> Rule:
    """Return the rule of a setting that a list of layer numbers may state."""

    def read(section: Section, count: int) -> Entries:
        stated_layers = section.get(key)
        return (
            [n in stated_layers for n in range(count)]
            if stated_layers is not None
            else derive(section, count)
        )

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        return {key: [n for n, entry in enumerate(entries) if entry]}

    return Rule(key, read, write, keys)


def stated_number(section: Section, key: str, default: int) -> int:
    """Return a number that config.json states, or the class's default."""
    value = section.get(key, default)
    return value if type(value) is int else default


def fixed(period: int, hit: str = FULL, miss: str = SLIDING, last: str = "") -> Derive:
    """Return the pattern with `hit` at the end of each period, and `last` at the end if given."""

    def derive(section: Section, count: int) -> Entries:
        if period < 1:  # the class divides by it
            return [hit] * count
        kinds = [hit if (n + 1) % period == 0 else miss for n in range(count)]
        return [*kinds[:-1], last] if last and kinds else kinds

    return derive


def every(key: str, default: int, hit: str = FULL, miss: str = SLIDING) -> Derive:
    """Return the pattern with `hit` at the end of each period, whose length a key states."""
    return lambda section, count: fixed(stated_number(section, key, default), hit, miss)(
        section, count
    )


def first(key: str, default: int, first: str = "dense", rest: str = "sparse") -> Derive:
    """Return the pattern with `first` in the first layers, whose number a key states."""

    def derive(section: Section, count: int) -> Entries:
        return [first if n < stated_number(section, key, default) else rest for n in range(count)]

    return derive


def always(entry: Any) -> Derive:
    """Return the pattern of one entry for all layers."""
    return lambda section, count: [entry] * count


def by_number(entry: Callable[[int], Any]) -> Derive:
    """Return the pattern with an entry that is computed from a layer's number."""
    return lambda section, count: [entry(n) for n in range(count)]
