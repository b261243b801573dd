"""Rules of layers that read what another layer made: keys and values, value embeddings."""

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
    """Return which layers of NeoMME read the value embedding: the first and last full ones."""
    kinds = rule_of_list("layer_types", fixed(6, last=FULL)).read(section, count)
    full = [n for n, kind in enumerate(kinds) if kind == FULL]
    return [n in (full[:1] + full[-1:]) for n in range(count)]


add_rules("neomme", Rule("value embeddings", _value_embeddings, unwritten, ("layer_types",)))


def _shared_states(kinds: Derive, default: int) -> Rule:
    """Return the rule of the last layers that take keys and values from an earlier one."""

    def read(section: Section, count: int) -> Entries:
        shared = stated_number(section, "num_kv_shared_layers", default)
        own, found = kinds(section, count), [LayerNumber(n) for n in range(count)]
        for n in range(max(count - shared, 0), count) if shared else ():
            makers = [m for m in range(count - shared) if own[m] == own[n]]
            found[n] = LayerNumber(makers[-1]) if makers else LayerNumber(-1)
        return found

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        own = [n == entry for n, entry in enumerate(entries)]
        return {"num_kv_shared_layers": own[::-1].index(True) if True in own else len(own)}

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
