"""Rules of attention: the layers that attend to all tokens, and those with rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from resumerge.layout.layer_rules.rule import (
    FULL,
    HYBRID,
    INDEXED,
    LINEAR,
    SLIDING,
    Derive,
    Entries,
    Rule,
    Section,
    add_rules,
    always,
    by_number,
    every,
    fixed,
    rule_of_list,
    rule_of_numbers,
    stated_number,
)

PATTERN = "sliding_window_pattern"
INTERVAL = "full_attention_interval"
EVERY = "global_attn_every_n_layers"


def _attention(types: str, derive: Derive, *keys: str) -> None:
    add_rules(types, rule_of_list("layer_types", derive, *keys))


def _from_period(types: str, key: str, default: int, *kinds: str) -> None:
    _attention(types, every(key, default, *kinds), key)


_from_period("gemma3_text t5gemma2_text t5gemma2_decoder", PATTERN, 6)
_from_period("cohere2 exaone4 exaone_moe", PATTERN, 4)
_from_period("afmoe", EVERY, 4)
_from_period("bailing_hybrid", "layer_group_size", 6, FULL, LINEAR)
_from_period("qwen3_next qwen3_5_text qwen3_5_moe_text", INTERVAL, 4, FULL, LINEAR)
_from_period("qwen4_exp_text", INTERVAL, 4, INDEXED, LINEAR)
_attention("gemma2 gpt_oss vaultgemma t5_gemma_module", fixed(2))
_attention("ultrabert", fixed(3))
_attention("olmo3", fixed(4))
_attention("gemma3n_text kolibri1", fixed(5))
_attention("inkling2_text", fixed(6, HYBRID, "hybrid_sliding"))
_attention("minimax", fixed(2, LINEAR, FULL))
_attention("cwm granite_swa granitemoe_swa", by_number(lambda n: SLIDING if n % 4 else FULL))
_attention("glm5_next_text", by_number(lambda n: INDEXED if n % 4 == 3 else LINEAR))
_attention("mimo_v2_flash", by_number(lambda n: FULL if n == 0 or n % 6 == 5 else SLIDING))
_attention(
    "lfm3",
    by_number(lambda n: FULL if n % 4 == 2 else SLIDING if n % 4 == 0 and n > 0 else "conv"),
)
_attention("lfm3_vl_vision", by_number(lambda n: "conv" if n < 2 or n % 2 else FULL))
_attention("beam", fixed(6, last=FULL))
_attention(
    "axk2 deepseek_v32 glm_moe_dsa hy_v4 mistral_large4_text",
    always(INDEXED),
)
_attention("cohere_compass_text laguna mellum step3p5", always(FULL))
_attention("granitemoehybrid", always(LINEAR))
_attention("zaya", always(HYBRID))
_attention("muse_glimmer_assistant", always(SLIDING))


def _modernbert(section: Section, count: int) -> Entries:
    period = stated_number(section, EVERY, 3)
    return [SLIDING if n % period else FULL for n in range(count)]


_attention("modernbert modernbert-decoder", _modernbert, EVERY)


def ends_full(period: Callable[[Section], int], *keys: str) -> Rule:
    """Return the rule of classes whose last layer has full attention, even if stated otherwise."""
    stated_rule = rule_of_list("layer_types", lambda section, n: fixed(period(section))(section, n))

    def read(section: Section, count: int) -> Entries:
        return [*stated_rule.read(section, count)[:-1], FULL]

    return Rule("layer_types", read, stated_rule.write, keys)


add_rules(
    "gemma4_text gemma4_unified_text diffusion_gemma_text",
    ends_full(lambda section: 6),
)
add_rules(
    "embedding_gemma2_text", ends_full(lambda section: stated_number(section, PATTERN, 6), PATTERN)
)


_attention("neomme", fixed(6, last=FULL))
_attention("muse_glimmer_vision muse_spark_vision", fixed(4, miss="window_attention", last=FULL))
_attention(
    "flint",
    lambda section, count: [
        FULL if n < 2 or n % 4 == 1 or n == count - 1 else SLIDING for n in range(count)
    ],
)
_attention(
    "muse_glimmer_text muse_spark_text",
    lambda section, count: [SLIDING if (count - 1 - n) % 4 else FULL for n in range(count)],
)


def _olmo_hybrid(section: Section, count: int) -> Entries:
    kinds = [FULL if n % 4 == 3 else LINEAR for n in range(count)]
    return kinds if FULL in kinds else [*kinds[:-1], FULL]


_attention("olmo_hybrid", _olmo_hybrid)


def _windows(default: int, switch: bool | None, window: int | None) -> Derive:
    """Return the pattern with sliding windows after the first `max_window_layers` layers.

    Args:
        default: the value of `max_window_layers` if config.json does not state it.
        switch: the default of `use_sliding_window`; None for classes without it.
        window: the default of `sliding_window`; None for classes that have no window by default.
    """

    def derive(section: Section, count: int) -> Entries:
        is_switched_on = switch is None or section.get("use_sliding_window", switch)
        has_windows = is_switched_on and section.get("sliding_window", window) is not None
        first_sliding = stated_number(section, "max_window_layers", default)
        return [SLIDING if has_windows and n >= first_sliding else FULL for n in range(count)]

    return derive


_WINDOW_KEYS = ("use_sliding_window", "max_window_layers")
_attention(
    "qwen2 qwen3 qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_5_omni_talker"
    " deepseek_ocr2_encoder",
    _windows(28, False, 4096),
    *_WINDOW_KEYS,
)
_attention("dots1", _windows(62, None, 4096), "max_window_layers")
_attention("qwen3_omni_moe_talker_code_predictor", _windows(28, None, None), "max_window_layers")
_attention(
    "qwen2_moe",
    lambda section, count: [
        SLIDING
        if n % 2 == 0
        and n < stated_number(section, "max_window_layers", 28)
        and section.get("use_sliding_window")
        else FULL
        for n in range(count)
    ],
    *_WINDOW_KEYS,
)


def _all_windowed(kind: str) -> Derive:
    return lambda section, count: (
        [FULL if section.get("sliding_window", 1) is None else kind] * count
    )


_attention("ministral", _all_windowed(SLIDING))
_attention("unlimited_ocr_text", _all_windowed("reference_sliding_attention"))


def _cohere2_moe(section: Section, count: int) -> Entries:
    prefix_length = min(stated_number(section, "first_k_dense_replace", 0), count)
    return [
        *every("prefix_dense_sliding_window_pattern", 1)(section, prefix_length),
        *every(PATTERN, 4)(section, count - prefix_length),
    ]


_attention("cohere2_moe", _cohere2_moe, "first_k_dense_replace", PATTERN)


def _deepseek_v4(section: Section, count: int) -> Entries:
    ratios = section.get("compress_ratios")
    heavy, sparse = "heavily_compressed_attention", "compressed_sparse_attention"
    if isinstance(ratios, list) and len(ratios) >= count:
        return [{0: SLIDING, 4: sparse}.get(ratio, heavy) for ratio in ratios[:count]]
    return [sparse if n >= 2 and n % 2 else heavy for n in range(count)]


_attention("deepseek_v4", _deepseek_v4, "compress_ratios")


def _dots3_note(section: Section, count: int) -> Entries:
    full_kind = FULL if section.get("use_dsa") is False else INDEXED
    is_full_only = not section.get("use_sliding_window", True)
    return [full_kind if is_full_only or n < 2 or n % 4 == 1 else SLIDING for n in range(count)]


_attention("dots3_note_text", _dots3_note)


def _inkling(section: Section, count: int) -> Entries:
    local_layers = section.get("local_layer_ids")
    return [
        f"{HYBRID}_sliding"
        if (n in local_layers if local_layers is not None else (n + 1) % 6)
        else HYBRID
        for n in range(count)
    ]


_attention("inkling_text", _inkling, "local_layer_ids")


def _kimi_linear(section: Section, count: int) -> Entries:
    stated_config = section.get("linear_attn_config") or {}
    if "full_attn_layers" in stated_config and "kda_layers" in stated_config:  # counted from 1
        return [
            FULL if n + 1 in stated_config["full_attn_layers"] else LINEAR for n in range(count)
        ]
    return [FULL if n and n % 4 == 0 else LINEAR for n in range(count)]


def _write_kimi_linear(section: Section, entries: Entries) -> Mapping[str, Any]:
    stated_config = section.get("linear_attn_config") or {}
    if "full_attn_layers" not in stated_config or section.get("layer_types"):
        return {"layer_types": entries}
    numbers = {
        "full_attn_layers": [n + 1 for n, kind in enumerate(entries) if kind == FULL],
        "kda_layers": [n + 1 for n, kind in enumerate(entries) if kind == LINEAR],
    }
    return {"linear_attn_config": {**stated_config, **numbers}}


add_rules(
    "kimi_linear",
    Rule(
        "layer_types",
        rule_of_list("layer_types", _kimi_linear).read,
        _write_kimi_linear,
        ("linear_attn_config",),
    ),
)
add_rules("lfm2", rule_of_numbers("full_attn_idxs", always(True)))
_attention(
    "lfm2",
    lambda section, count: [
        FULL if section.get("full_attn_idxs") is None or n in section["full_attn_idxs"] else "conv"
        for n in range(count)
    ],
    "full_attn_idxs",
)


def _minimax_m3(section: Section, count: int) -> Entries:
    stated_frequencies = (section.get("sparse_attention_config") or {}).get("sparse_attention_freq")
    return [
        "minimax_m3_sparse"
        if stated_frequencies and n < len(stated_frequencies) and stated_frequencies[n]
        else FULL
        for n in range(count)
    ]


_attention("minimax_m3_vl_text", _minimax_m3, "sparse_attention_config")


def _indexers(section: Section, count: int) -> Entries:
    pattern = section.get("index_topk_pattern")
    if pattern is not None and len(pattern) == count:
        return [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    period = max(stated_number(section, "index_topk_freq", 1), 1)
    first_layer = stated_number(section, "index_skip_topk_offset", 2) - 1
    return ["shared" if max(n - first_layer, 0) % period else "full" for n in range(count)]


add_rules(
    "glm5_next_text glm_moe_dsa mistral_large4_text",
    rule_of_list("indexer_types", _indexers, "index_topk_freq", "index_topk_pattern"),
)
add_rules(
    "hy_v4",
    rule_of_list("indexer_types", by_number(lambda n: "shared" if n and (n - 1) % 4 else "full")),
)


def _no_rope(section: Section, count: int) -> Entries:
    period = max(stated_number(section, "no_rope_layer_interval", 4), 1)
    return [int((n + 1) % period != 0) for n in range(count)]


add_rules(
    "smollm3 llama4_text mistral_large4_text",
    rule_of_list("no_rope_layers", _no_rope, "no_rope_layer_interval"),
)
_attention(
    "smollm3",
    lambda section, count: [
        SLIDING
        if section.get("use_sliding_window")
        and section.get("sliding_window") is not None
        and not rope
        else FULL
        for rope in rule_of_list("no_rope_layers", _no_rope).read(section, count)
    ],
    "no_rope_layer_interval",
)
_attention(
    "llama4_text",
    lambda section, count: [
        "chunked_attention" if rope else FULL
        for rope in rule_of_list("no_rope_layers", _no_rope).read(section, count)
    ],
    "no_rope_layer_interval",
)


def _theta(section: Section) -> Any:
    rope_parameters = section.get("rope_parameters")
    return (
        rope_parameters.get("rope_theta")
        if isinstance(rope_parameters, Mapping)
        else section.get("rope_theta")
    )


add_rules(
    "granite_swa granitemoe_swa",
    rule_of_list("layer_rope_theta", lambda section, count: [_theta(section)] * count),
)
add_rules(
    "muse_glimmer_text muse_spark_text",
    rule_of_list(
        "layer_rope_theta",
        lambda section, count: [
            _theta(section) if (count - 1 - n) % 4 else 0 for n in range(count)
        ],
    ),
)
add_rules("molmo2_text", rule_of_numbers("rope_scaling_layers", always(True)))
