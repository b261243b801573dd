"""Rules of lists that select layers by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.layout.layer_rules.rule import (
    Entries,
    Rule,
    Section,
    add_rules,
    by_number,
    rule_of_numbers,
)


def _picked_in_order(key: str, *default: int, first: int = 0) -> Rule:
    """Return the rule of a list of layers whose order matters, because other modules follow it.

    Args:
        key: the list's key in config.json, which is also the setting's name.
        default: the numbers of the layers if config.json does not state them.
        first: the number that the list uses for the first layer of the model.
    """

    def read(section: Section, count: int) -> Entries:
        stated_layers = list(default if section.get(key) is None else section[key])
        return [
            stated_layers.index(n + first) + 1 if n + first in stated_layers else 0
            for n in range(count)
        ]

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        return {key: [n + first for n, entry in enumerate(entries) if entry]}

    return Rule(key, read, write, (key,))


add_rules("qwen4_exp_text", _picked_in_order("ple_layer_ids", first=1))
add_rules(
    "qwen3_vl_vision qwen3_vl_moe_vision qwen3_omni_moe_vision_encoder cohere_compass_vision",
    _picked_in_order("deepstack_visual_indexes", 8, 16, 24),
)
add_rules("granite_docling_vision", _picked_in_order("deepstack_visual_indexes", 3, 7, 10))
add_rules("mllama_vision_model", _picked_in_order("intermediate_layers_indices", 3, 7, 15, 23, 30))
add_rules("seggpt", _picked_in_order("intermediate_hidden_state_indices", 5, 11, 17, 23))


def _picked(key: str, *default: int) -> Rule:
    """Return the rule of a list of layer numbers that has a default."""
    return rule_of_numbers(key, by_number(lambda n: n in default), key)


add_rules("mllama_text_model", _picked("cross_attention_layers", 3, 8, 13, 18, 23, 28, 33, 38))
add_rules(
    "qwen2_5_vl_vision qwen2_5_omni_vision_encoder exaone4_5_vision",
    _picked("fullatt_block_indexes", 7, 15, 23, 31),
)
add_rules(
    "sam_vision_model sam_hq_vision_model got_ocr2_vision pp_chart2table_vision"
    " pp_formulanet_vision slanext_vision deepseek_ocr2_sam_vision_model"
    " unlimited_ocr_sam_vision_model",
    _picked("global_attn_indexes", 2, 5, 8, 11),
)
add_rules("sam3_vit_model", _picked("global_attn_indexes", 7, 15, 23, 31))
add_rules(
    "qwen2_5_omni_dit", _picked("look_ahead_layers", 10), _picked("look_backward_layers", 0, 20)
)
