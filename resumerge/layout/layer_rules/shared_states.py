"""Rules of layers that read another layer's results: keys and values, or value embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.layout.layer_rules.attention import ends_full
from resumerge.layout.layer_rules.rule import (
    FULL,
    Derive,
    Entries,
    LayerNumber,
    Rule,
    Section,
    add_rules,
    fixed,
    rule_of_list,
    stated_number,
    unwritten,
)


def _value_embeddings(section: Section, count: int) -> Entries:
    """Return True for NeoMME's layers that read the value embedding, by layer.

    These are the first and the last layer with full attention.
    """
    kinds = rule_of_list("layer_types", fixed(6, last=FULL)).read(section, count)
    full_layers = [n for n, kind in enumerate(kinds) if kind == FULL]
    return [n in (full_layers[:1] + full_layers[-1:]) for n in range(count)]


add_rules("neomme", Rule("value embeddings", _value_embeddings, unwritten, ("layer_types",)))


def _shared_states(kinds: Derive, default: int) -> Rule:
    """Return the rule of classes whose last layers read keys and values of an earlier layer."""

    def read(section: Section, count: int) -> Entries:
        shared_count = stated_number(section, "num_kv_shared_layers", default)
        own_kinds, sources = kinds(section, count), [LayerNumber(n) for n in range(count)]
        for n in range(max(count - shared_count, 0), count) if shared_count else ():
            same_kind_layers = [
                m for m in range(count - shared_count) if own_kinds[m] == own_kinds[n]
            ]
            sources[n] = LayerNumber(same_kind_layers[-1]) if same_kind_layers else LayerNumber(-1)
        return sources

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        is_own = [n == entry for n, entry in enumerate(entries)]
        return {"num_kv_shared_layers": is_own[::-1].index(True) if True in is_own else len(is_own)}

    return Rule("num_kv_shared_layers", read, write, ("num_kv_shared_layers",))


add_rules("gemma4_text gemma4_unified_text", _shared_states(ends_full(lambda section: 6).read, 0))
add_rules("gemma3n_text", _shared_states(rule_of_list("layer_types", fixed(5)).read, 15))


def _kv_sources(section: Section, count: int) -> Entries:
    stated = section.get("kv_source_layers")
    return [LayerNumber(n) for n in (range(count) if stated is None else stated)]


add_rules(
    "mistral_large4_text",
    Rule(
        "kv_source_layers",
        _kv_sources,
        lambda section, entries: {"kv_source_layers": [int(entry) for entry in entries]},
        ("kv_source_layers",),
    ),
)
