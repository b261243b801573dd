"""Rules of settings that follow from a layer's number alone: no key can state other values."""

from __future__ import annotations

from resumerge.layout.layer_rules.rule import (
    FULL,
    LINEAR,
    Derive,
    Rule,
    add_rules,
    by_number,
    fixed,
    rule_of_list,
    rule_of_numbers,
    stated_number,
    unwritten,
)


def _never_written(name: str, read: Derive, *keys: str) -> Rule:
    """Return the rule of a setting that no key of config.json can state layer by layer."""
    return Rule(name, read, unwritten, keys)


add_rules(
    "gpt2 imagegpt decision_transformer",
    _never_written(
        "scale_attn_by_inverse_layer_idx",
        lambda section, count: [
            n if section.get("scale_attn_by_inverse_layer_idx") else 0 for n in range(count)
        ],
        "scale_attn_by_inverse_layer_idx",
    ),
)
add_rules("diffllama", _never_written("lambda_init", lambda section, count: list(range(count))))
add_rules(
    "minimax",
    _never_written(
        "slope_rate",
        lambda section, count: [
            (n, count) if kind == LINEAR else None
            for n, kind in enumerate(
                rule_of_list("layer_types", fixed(2, LINEAR, FULL)).read(section, count)
            )
        ],
    ),
)
add_rules(
    "inkling2_text",
    _never_written(
        "n_layers_per_attn_res_block",
        lambda section, count: [
            n % max(stated_number(section, "n_layers_per_attn_res_block", 6), 1) == 0
            for n in range(count)
        ],
        "n_layers_per_attn_res_block",
    ),
)
add_rules(
    "evolla",
    _never_written(
        "aligner_num_add_layers",
        lambda section, count: [
            (n + 1) % max(count // max(stated_number(section, "aligner_num_add_layers", 8), 1), 1)
            == 0
            for n in range(count)
        ],
        "aligner_num_add_layers",
    ),
)
add_rules(
    "blip_2_qformer instructblip_qformer instructblipvideo_qformer",
    _never_written(
        "cross_attention_frequency",
        lambda section, count: [
            n % max(stated_number(section, "cross_attention_frequency", 2), 1) == 0
            for n in range(count)
        ],
        "cross_attention_frequency",
    ),
)
add_rules(
    "granite_speech5_encoder",
    _never_written("the middle layer", lambda section, n: [i + 1 == n // 2 for i in range(n)]),
    rule_of_numbers("subsample_layers", by_number(lambda n: n < 2)),
)
