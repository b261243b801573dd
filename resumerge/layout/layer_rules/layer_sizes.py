"""Rules of sizes that differ between layers: widths, heads, windows, multipliers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.layout.layer_lists import read_layer_list
from resumerge.layout.layer_rules.rule import (
    FULL,
    SLIDING,
    Entries,
    Rule,
    Section,
    add_rules,
    fixed,
    rule_of_list,
    stated_number,
)


def _widths(section: Section, count: int) -> Entries:
    return [section.get("intermediate_size", 16384)] * count


add_rules("gemma3n_text", rule_of_list("intermediate_size", _widths))
add_rules(
    "gemma3n_text",
    rule_of_list(
        "activation_sparsity_pattern",
        lambda section, count: [0.95 if count > 10 and n < 10 else 0.0 for n in range(count)],
    ),
)
add_rules(
    "laguna",
    rule_of_list(
        "num_attention_heads_per_layer",
        lambda section, count: [section.get("num_attention_heads", 48)] * count,
    ),
)


def _sapiens2(section: Section, count: int) -> Entries:
    first_fewer = stated_number(section, "num_first_full_attention_layers", 8)
    stop_fewer = count - stated_number(section, "num_last_full_attention_layers", 8)
    heads = section.get("num_attention_heads", 16)
    fewer_heads = section.get("num_key_value_attention_heads", heads // 2)
    return [fewer_heads if first_fewer <= n < stop_fewer else heads for n in range(count)]


add_rules(
    "sapiens2",
    rule_of_list(
        "num_key_value_heads_per_layer",
        _sapiens2,
        "num_first_full_attention_layers",
        "num_last_full_attention_layers",
    ),
)


def _long_windows(section: Section, count: int) -> Entries:
    """Return NeoMME's windows: layers with a window have a short and a long one in turn."""
    kinds = rule_of_list("layer_types", fixed(6, last=FULL)).read(section, count)
    stated_entries = read_layer_list("per_layer_config", section.get("per_layer_config"), count)
    if stated_entries is not None:
        return stated_entries
    entries: Entries = []
    window_count = 0
    for kind in kinds:
        full_entry = {"sliding_window": None} if kind == FULL else None
        entries.append(
            full_entry if kind == FULL or window_count % 2 == 0 else {"sliding_window": 1024}
        )
        window_count += kind == SLIDING
    return entries


def _write_by_number(section: Section, entries: Entries) -> Mapping[str, Any]:
    return {"per_layer_config": {str(n): e for n, e in enumerate(entries) if e is not None}}


add_rules("neomme", Rule("per_layer_config", _long_windows, _write_by_number))


def _residual(section: Section, count: int) -> Entries:
    stated = section.get("residual_multiplier")
    return [(2 * count) ** -0.5 if stated is None else stated] * count


add_rules(
    "neomme",
    Rule(
        "residual_multiplier",
        _residual,
        lambda section, entries: {"residual_multiplier": entries[0]},
    ),
)


_WINDOWS = [[16, 4], [16, 4], [16, 0], [16, 0], [16, 4], [16, 4]]
add_rules(
    "moonshine_streaming_encoder",
    rule_of_list("sliding_windows", lambda section, count: _WINDOWS[:count]),
)
