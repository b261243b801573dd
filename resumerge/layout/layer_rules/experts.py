"""Rules that decide which layers have experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.layout.layer_rules.rule import (
    Derive,
    Entries,
    Rule,
    Section,
    add_rules,
    always,
    first,
    rule_of_list,
    rule_of_numbers,
    stated_number,
)

DENSE = "first_k_dense_replace"


def _experts(types: str, derive: Derive, *keys: str) -> None:
    add_rules(types, rule_of_list("mlp_layer_types", derive, *keys))


_experts("bailing_hybrid", first(DENSE, 2), DENSE)
_experts("cohere2_moe", first(DENSE, 0), DENSE)
_experts("deepseek_v32 glm_moe_dsa", first(DENSE, 3), DENSE)
_experts("exaone_moe kimi_linear mistral_large4_text unlimited_ocr_text", first(DENSE, 1), DENSE)
_experts("beam glm5_next_text", first("", 3))
_experts("ernie4_5_vl_moe_text glm4_moe_lite hy_v3 hy_v4 laguna mimo_v2_flash", first("", 1))
_experts("inkling_text", first("dense_mlp_idx", 0), "dense_mlp_idx")
_experts("mellum muse_spark_text", always("sparse"))
_experts("deepseek_v4", first("num_hash_layers", 3, "hash_moe", "moe"), "num_hash_layers")


def _moe_frequency(section: Section, count: int) -> Entries:
    frequency, first_sparse = section.get("moe_layer_freq", 1), stated_number(section, DENSE, 1)
    if isinstance(frequency, list):
        are_chosen = [bool(f) for f in frequency] + [True] * count
    else:
        are_chosen = [n % max(frequency, 1) == 0 for n in range(count)]
    return ["sparse" if n >= first_sparse and are_chosen[n] else "dense" for n in range(count)]


_experts("axk1 axk2 dots3_note_text", _moe_frequency, DENSE, "moe_layer_freq")
_experts(
    "minimax_m3_vl_text",
    lambda section, count: [
        "sparse" if frequency else "dense"
        for frequency in (section.get("moe_layer_freq") or [1] * count)[:count]
    ],
    "moe_layer_freq",
)


_PYRAMID = [-1] * 25 + [*range(4, 65, 4), 64]


def _pyramid(section: Section, count: int) -> Entries:
    """Return dots3.note's default number of experts in each layer of its vision tower.

    The entries are None if another key states the layers.
    """
    return [None] * count if section.get("mlp_layer_types") else _PYRAMID[:count]


add_rules("dots3_note_vision_encoder", rule_of_list("pyramid_num_routed", _pyramid))


def _step3(section: Section, count: int) -> Entries:
    stated_layers = section.get("moe_layers_enum")
    if stated_layers is None:
        return first("", 3)({}, count)
    items = stated_layers.split(",") if isinstance(stated_layers, str) else stated_layers
    sparse_layers = {int(item) for item in items if str(item).strip()}
    return ["sparse" if n in sparse_layers else "dense" for n in range(count)]


_experts("step3p5", _step3, "moe_layers_enum")


def _leading(key: str, default: int) -> Rule:
    """Return the rule of classes without a list: a key states the number of first, dense layers."""

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        return {key: entries.index("sparse") if "sparse" in entries else len(entries)}

    return Rule(key, first(key, default), write, (key,))


add_rules("deepseek_v2 dots1 mistral4", _leading(DENSE, 0))
add_rules("glm4_moe glm4v_moe_text", _leading(DENSE, 1))
add_rules("deepseek_v3", _leading(DENSE, 3))
add_rules("afmoe", _leading("num_dense_layers", 1))
add_rules("lfm2_moe", _leading("num_dense_layers", 2))


def _mlp_only(default: tuple[int, ...] = ()) -> Rule:
    """Return the rule of Qwen's mixtures: every n-th layer that no list excludes has experts."""

    def read(section: Section, count: int) -> Entries:
        period = max(stated_number(section, "decoder_sparse_step", 1), 1)
        dense_layers = section.get("mlp_only_layers")
        dense_layers = default if dense_layers is None else dense_layers
        return [
            "sparse" if n not in dense_layers and (n + 1) % period == 0 else "dense"
            for n in range(count)
        ]

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        dense_layers = [n for n, entry in enumerate(entries) if entry == "dense"]
        return {"mlp_only_layers": dense_layers, "decoder_sparse_step": 1}

    return Rule("mlp_only_layers", read, write, ("decoder_sparse_step", "mlp_only_layers"))


add_rules("qwen2_moe qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_omni_moe_text", _mlp_only())
add_rules("qwen3_omni_moe_talker_text", _mlp_only())
add_rules("flint", _mlp_only((0, 1)))


def _moe_layers(section: Section, count: int) -> Entries:
    step = max(stated_number(section, "interleave_moe_layer_step", 1), 1)
    return [(n + 1) % step == 0 for n in range(count)]


add_rules("llama4_text", rule_of_numbers("moe_layers", _moe_layers, "interleave_moe_layer_step"))

_ERNIE = ("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval")


def _ernie(section: Section, count: int) -> Entries:
    start, end, step = (stated_number(section, key, n) for key, n in zip(_ERNIE, (1, -1, 1)))
    end = count - 1 if end == -1 else end
    return [(n + 1) % max(step, 1) == 0 and start <= n <= end for n in range(count)]


def _write_ernie(section: Section, entries: Entries) -> Mapping[str, Any]:
    sparse_layers = [n for n, entry in enumerate(entries) if entry]
    step = sparse_layers[1] - sparse_layers[0] if len(sparse_layers) > 1 else 1
    ends = (sparse_layers[0], sparse_layers[-1]) if sparse_layers else (len(entries), len(entries))
    return dict(zip(_ERNIE, (*ends, step)))


add_rules("ernie4_5_moe", Rule("moe_layer_start_index", _ernie, _write_ernie, _ERNIE))


def _periods(period: str, offset: str, at: int, of: int) -> Rule:
    """Return the rule of Jamba: one layer of each period is of another kind."""

    def read(section: Section, count: int) -> Entries:
        layer_period = max(stated_number(section, period, of), 1)
        return [n % layer_period == stated_number(section, offset, at) for n in range(count)]

    def write(section: Section, entries: Entries) -> Mapping[str, Any]:
        numbers = [n for n, entry in enumerate(entries) if entry] or [len(entries)]
        step = numbers[1] - numbers[0] if len(numbers) > 1 else len(entries) + 1
        return {period: step, offset: numbers[0]}

    return Rule(period, read, write, (period, offset))


add_rules("jamba", _periods("attn_layer_period", "attn_layer_offset", 4, 8))
add_rules("jamba", _periods("expert_layer_period", "expert_layer_offset", 1, 2))
