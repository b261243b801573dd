"""Rules of hybrids' blocks, of widths, and of layers that read what other layers made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.layout.layer_lists import read_layer_list
from resumerge.layout.layer_rules.attention import ends_full, last_too
from resumerge.layout.layer_rules.rule import (
    FULL,
    HYBRID,
    LINEAR,
    RULES,
    SLIDING,
    Derive,
    Entries,
    LayerNumber,
    Rule,
    Section,
    by_number,
    declare,
    every,
    integer,
    listed,
    numbers,
    unwritten,
)


def _zamba(section: Section, count: int) -> Entries:
    period, offset = (
        integer(section, "attn_layer_period", 6),
        integer(section, "attn_layer_offset", 4),
    )
    rest = [HYBRID if n % max(period, 1) == offset else LINEAR for n in range(count - 3)]
    return [LINEAR, LINEAR, HYBRID, *rest][:count]


declare("zamba", listed("layers_block_type", _zamba, "attn_layer_period", "attn_layer_offset"))
_ZAMBA2 = "LLLLLLH" + "LLLLLH" * 6 + "LLLLHLLLHLL"
declare(
    "zamba2",
    listed(
        "layers_block_type",
        by_number(lambda n: HYBRID if _ZAMBA2[n % len(_ZAMBA2)] == "H" else LINEAR),
    ),
)


def _shared_blocks(own: Rule, *, counted: bool) -> Rule:
    """Return the rule of Zamba: hybrid layers share blocks, which they take in turn.

    Args:
        own: the rule of the kinds of layers.
        counted: whether the blocks have a part for each hybrid layer.
    """

    def read(section: Section, count: int) -> Entries:
        hybrid = [n for n, kind in enumerate(own.read(section, count)) if kind == HYBRID]
        total = len(hybrid) if counted else 0
        return [(hybrid.index(n), total) if n in hybrid else None for n in range(count)]

    return Rule("shared blocks", read, unwritten, ("layers_block_type",))


declare("zamba", _shared_blocks(RULES["zamba"][0], counted=False))
declare("zamba2", _shared_blocks(RULES["zamba2"][0], counted=True))
_LETTERS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def _nemotron_h(section: Section, count: int) -> Entries:
    pattern = section.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == count:
        return [_LETTERS.get(letter, letter) for letter in pattern]
    return [(LINEAR, "moe", FULL, "mlp")[n % 4] for n in range(count)]


declare("nemotron_h", listed("layers_block_type", _nemotron_h, "hybrid_override_pattern"))


def _gpt_neo(section: Section, count: int) -> Entries:
    return [("global", "local")[n % 2] for n in range(count)]


def _write_gpt_neo(section: Section, entries: Entries) -> Mapping[str, Any]:
    return {"attention_types": [[entries, 1]]}


declare(
    "gpt_neo",
    Rule("attention_types", listed("attention_types", _gpt_neo).read, _write_gpt_neo),
)
declare("reformer", listed("attn_layers", by_number(lambda n: ("local", "lsh")[n % 2])))
declare(
    "recurrent_gemma",
    listed("block_types", by_number(lambda n: "attention" if n % 3 == 2 else "recurrent")),
)


def _widths(section: Section, count: int) -> Entries:
    return [section.get("intermediate_size", 16384)] * count


declare("gemma3n_text", listed("intermediate_size", _widths))
declare(
    "gemma3n_text",
    listed(
        "activation_sparsity_pattern",
        lambda section, count: [0.95 if count > 10 and n < 10 else 0.0 for n in range(count)],
    ),
)
declare(
    "laguna",
    listed(
        "num_attention_heads_per_layer",
        lambda section, count: [section.get("num_attention_heads", 48)] * count,
    ),
)


def _sapiens2(section: Section, count: int) -> Entries:
    first = integer(section, "num_first_full_attention_layers", 8)
    last = count - integer(section, "num_last_full_attention_layers", 8)
    heads = section.get("num_attention_heads", 16)
    fewer = section.get("num_key_value_attention_heads", heads // 2)
    return [fewer if first <= n < last else heads for n in range(count)]


declare(
    "sapiens2",
    listed(
        "num_key_value_heads_per_layer",
        _sapiens2,
        "num_first_full_attention_layers",
        "num_last_full_attention_layers",
    ),
)


def _long_windows(section: Section, count: int) -> Entries:
    """Return NeoMME's windows: short and long in turn, over the layers that have one."""
    kinds = listed("layer_types", last_too(FULL, 6, SLIDING)).read(section, count)
    stated = read_layer_list("per_layer_config", section.get("per_layer_config"), count)
    if stated is not None:
        return stated
    found: Entries = []
    windows = 0
    for kind in kinds:
        full = {"sliding_window": None} if kind == FULL else None
        found.append(full if kind == FULL or windows % 2 == 0 else {"sliding_window": 1024})
        windows += kind == SLIDING
    return found


def _write_by_number(section: Section, entries: Entries) -> Mapping[str, Any]:
    return {"per_layer_config": {str(n): e for n, e in enumerate(entries) if e is not None}}


declare("neomme", Rule("per_layer_config", _long_windows, _write_by_number))


def _residual(section: Section, count: int) -> Entries:
    stated = section.get("residual_multiplier")
    return [(2 * count) ** -0.5 if stated is None else stated] * count


declare(
    "neomme",
    Rule(
        "residual_multiplier",
        _residual,
        lambda section, entries: {"residual_multiplier": entries[0]},
    ),
)


def _value_embeddings(section: Section, count: int) -> Entries:
    """Return which layers of NeoMME read the value embedding: the first and last full ones."""
    kinds = listed("layer_types", last_too(FULL, 6, SLIDING)).read(section, count)
    full = [n for n, kind in enumerate(kinds) if kind == FULL]
    return [n in (full[:1] + full[-1:]) for n in range(count)]


declare("neomme", Rule("value embeddings", _value_embeddings, unwritten, ("layer_types",)))


def _shared_states(kinds: Derive, default: int) -> Rule:
    """Return the rule of the last layers that take keys and values from an earlier one."""

    def read(section: Section, count: int) -> Entries:
        shared = integer(section, "num_kv_shared_layers", default)
        own, found = kinds(section, count), [LayerNumber(n) for n in range(count)]
        for n in range(max(count - shared, 0), count) if shared else ():
            makers = [m for m in range(count - shared) if own[m] == own[n]]
            found[n] = LayerNumber(makers[-1]) if makers else LayerNumber(-1)
        return found

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        own = [n == entry for n, entry in enumerate(entries)]
        return {"num_kv_shared_layers": own[::-1].index(True) if True in own else len(own)}

    return Rule("num_kv_shared_layers", read, write, ("num_kv_shared_layers",))


declare("gemma4_text gemma4_unified_text", _shared_states(ends_full(lambda section: 6).read, 0))
declare("gemma3n_text", _shared_states(listed("layer_types", every("", 5)).read, 15))


def _kv_sources(section: Section, count: int) -> Entries:
    stated = section.get("kv_source_layers")
    return [LayerNumber(n) for n in (range(count) if stated is None else stated)]


declare(
    "mistral_large4_text",
    Rule(
        "kv_source_layers",
        _kv_sources,
        lambda section, entries: {"kv_source_layers": [int(entry) for entry in entries]},
        ("kv_source_layers",),
    ),
)


def _taken(key: str, *default: int, first: int = 0) -> Rule:
    """Return the rule of a list of layers that modules elsewhere follow, in their order.

    Args:
        key: the list's key.
        default: the numbers of the layers, if config.json does not state them.
        first: the number of the first layer of the model.
    """

    def read(section: Section, count: int) -> Entries:
        stated = list(default if section.get(key) is None else section[key])
        return [stated.index(n + first) + 1 if n + first in stated else 0 for n in range(count)]

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        return {key: [n + first for n, entry in enumerate(entries) if entry]}

    return Rule(key, read, write, (key,))


declare("qwen4_exp_text", _taken("ple_layer_ids", first=1))
declare(
    "qwen3_vl_vision qwen3_vl_moe_vision qwen3_omni_moe_vision_encoder cohere_compass_vision",
    _taken("deepstack_visual_indexes", 8, 16, 24),
)
declare("granite_docling_vision", _taken("deepstack_visual_indexes", 3, 7, 10))
declare("mllama_vision_model", _taken("intermediate_layers_indices", 3, 7, 15, 23, 30))
declare("seggpt", _taken("intermediate_hidden_state_indices", 5, 11, 17, 23))


def _among(key: str, *default: int) -> Rule:
    """Return the rule of a list of the numbers of layers, and of its default."""
    return numbers(key, by_number(lambda n: n in default), key)


declare("mllama_text_model", _among("cross_attention_layers", 3, 8, 13, 18, 23, 28, 33, 38))
declare(
    "qwen2_5_vl_vision qwen2_5_omni_vision_encoder exaone4_5_vision",
    _among("fullatt_block_indexes", 7, 15, 23, 31),
)
declare(
    "sam_vision_model sam_hq_vision_model got_ocr2_vision pp_chart2table_vision"
    " pp_formulanet_vision slanext_vision deepseek_ocr2_sam_vision_model"
    " unlimited_ocr_sam_vision_model",
    _among("global_attn_indexes", 2, 5, 8, 11),
)
declare("sam3_vit_model", _among("global_attn_indexes", 7, 15, 23, 31))
declare("qwen2_5_omni_dit", _among("look_ahead_layers", 10), _among("look_backward_layers", 0, 20))
_WINDOWS = [[16, 4], [16, 4], [16, 0], [16, 0], [16, 4], [16, 4]]
declare(
    "moonshine_streaming_encoder",
    listed("sliding_windows", lambda section, count: _WINDOWS[:count]),
)


def _numbered(key: str, read: Derive, *says: str) -> Rule:
    return Rule(key, read, unwritten, says)


declare(
    "gpt2 imagegpt decision_transformer",
    _numbered(
        "scale_attn_by_inverse_layer_idx",
        lambda section, count: [
            n if section.get("scale_attn_by_inverse_layer_idx") else 0 for n in range(count)
        ],
        "scale_attn_by_inverse_layer_idx",
    ),
)
declare("diffllama", _numbered("lambda_init", lambda section, count: list(range(count))))
declare(
    "minimax",
    _numbered(
        "slope_rate",
        lambda section, count: [
            (n, count) if kind == LINEAR else None
            for n, kind in enumerate(
                listed("layer_types", every("", 2, LINEAR, FULL)).read(section, count)
            )
        ],
    ),
)
declare(
    "inkling2_text",
    _numbered(
        "n_layers_per_attn_res_block",
        lambda section, count: [
            n % max(integer(section, "n_layers_per_attn_res_block", 6), 1) == 0
            for n in range(count)
        ],
        "n_layers_per_attn_res_block",
    ),
)
declare(
    "evolla",
    _numbered(
        "aligner_num_add_layers",
        lambda section, count: [
            (n + 1) % max(count // max(integer(section, "aligner_num_add_layers", 8), 1), 1) == 0
            for n in range(count)
        ],
        "aligner_num_add_layers",
    ),
)
declare(
    "blip_2_qformer instructblip_qformer instructblipvideo_qformer",
    _numbered(
        "cross_attention_frequency",
        lambda section, count: [
            n % max(integer(section, "cross_attention_frequency", 2), 1) == 0 for n in range(count)
        ],
        "cross_attention_frequency",
    ),
)
declare(
    "granite_speech5_encoder",
    _numbered("the middle layer", lambda section, n: [i + 1 == n // 2 for i in range(n)]),
    numbers("subsample_layers", by_number(lambda n: n < 2)),
)
