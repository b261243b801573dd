"""Rules of hybrids: the kind of each block, and the blocks that share their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.layout.layer_rules.rule import (
    FULL,
    HYBRID,
    LINEAR,
    RULES,
    Entries,
    Rule,
    Section,
    add_rules,
    by_number,
    rule_of_list,
    stated_number,
    unwritten,
)


def _zamba(section: Section, count: int) -> Entries:
    period = stated_number(section, "attn_layer_period", 6)
    offset = stated_number(section, "attn_layer_offset", 4)
    later_kinds = [HYBRID if n % max(period, 1) == offset else LINEAR for n in range(count - 3)]
    return [LINEAR, LINEAR, HYBRID, *later_kinds][:count]


add_rules(
    "zamba", rule_of_list("layers_block_type", _zamba, "attn_layer_period", "attn_layer_offset")
)
_ZAMBA2 = "LLLLLLH" + "LLLLLH" * 6 + "LLLLHLLLHLL"
add_rules(
    "zamba2",
    rule_of_list(
        "layers_block_type",
        by_number(lambda n: HYBRID if _ZAMBA2[n % len(_ZAMBA2)] == "H" else LINEAR),
    ),
)


def _shared_blocks(own: Rule, *, counted: bool) -> Rule:
    """Return the rule of Zamba: hybrid layers use a few shared blocks in turn.

    Args:
        own: the rule that tells which layers are hybrid.
        counted: whether each block has a separate part for each hybrid layer.
    """

    def read(section: Section, count: int) -> Entries:
        hybrid_layers = [n for n, kind in enumerate(own.read(section, count)) if kind == HYBRID]
        part_count = len(hybrid_layers) if counted else 0
        return [
            (hybrid_layers.index(n), part_count) if n in hybrid_layers else None
            for n in range(count)
        ]

    return Rule("shared blocks", read, unwritten, ("layers_block_type",))


add_rules("zamba", _shared_blocks(RULES["zamba"][0], counted=False))
add_rules("zamba2", _shared_blocks(RULES["zamba2"][0], counted=True))
_LETTERS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def _nemotron_h(section: Section, count: int) -> Entries:
    pattern = section.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == count:
        return [_LETTERS.get(letter, letter) for letter in pattern]
    return [(LINEAR, "moe", FULL, "mlp")[n % 4] for n in range(count)]


add_rules("nemotron_h", rule_of_list("layers_block_type", _nemotron_h, "hybrid_override_pattern"))


def _gpt_neo(section: Section, count: int) -> Entries:
    return [("global", "local")[n % 2] for n in range(count)]


def _write_gpt_neo(section: Section, entries: Entries) -> Mapping[str, Any]:
    return {"attention_types": [[entries, 1]]}


add_rules(
    "gpt_neo",
    Rule("attention_types", rule_of_list("attention_types", _gpt_neo).read, _write_gpt_neo),
)
add_rules("reformer", rule_of_list("attn_layers", by_number(lambda n: ("local", "lsh")[n % 2])))
add_rules(
    "recurrent_gemma",
    rule_of_list("block_types", by_number(lambda n: "attention" if n % 3 == 2 else "recurrent")),
)
