"""Promise: a pattern of modules means what it means to peft, and the first that fits decides."""

from __future__ import annotations

import math

import pytest
from peft.utils.other import get_pattern_key

from resumerge.sources.adapter_programs.config import parse_adapter_config

DEFAULT = 8
QUERY = "model.layers.1.self_attn.q_proj"
NAMES = [
    QUERY,
    "model.layers.11.self_attn.q_proj",
    "model.layers.1.self_attn.eq_proj",
    "model.layers.1.self_attn.q_proj.inner",
    "model.layers.1.self_attn.kv_proj",
    "layers.1.mlp.down_proj",
    "q_proj",
]
PATTERNS = [
    ["q_proj"],
    ["proj"],
    [r"layers\.1"],
    [r"layers\.1\..*"],
    ["self_attn.q_proj"],
    ["1.self_attn.q_proj"],
    [QUERY],
    [f"^{QUERY}"],
    ["q_proj$"],
    ["q_proj|kv_proj"],
    ["model|q_proj"],
    ["(q|v)_proj"],
    ["v_proj", "q_proj", ".*"],
    [".*", "q_proj"],
    ["self_attn.q_proj", "q_proj"],
    ["q_proj", "self_attn.q_proj"],
    ["Q_proj"],
]


@pytest.mark.parametrize("patterns", PATTERNS, ids=" ".join)
def test_a_module_has_the_alpha_of_the_first_pattern_that_fits_as_in_peft(
    patterns: list[str],
) -> None:
    alphas = {pattern: 100 + number for number, pattern in enumerate(patterns)}
    found = parse_adapter_config(
        {"peft_type": "LORA", "lora_alpha": DEFAULT, "alpha_pattern": alphas}, "here"
    )
    for name in NAMES:
        expected = alphas.get(get_pattern_key(alphas.keys(), name), DEFAULT)
        assert found.scale(name, 1) == expected, name


def test_an_alpha_of_zero_is_one() -> None:
    config = {"peft_type": "LORA", "lora_alpha": 0, "alpha_pattern": {"q_proj": 4}}
    found = parse_adapter_config(config, "here")
    assert (found.scale("q_proj", 2), found.scale("k_proj", 2)) == (2, 0)
    found = parse_adapter_config({**config, "lora_alpha": 6, "alpha_pattern": {"q_proj": 0}}, "x")
    assert (found.scale("q_proj", 2), found.scale("k_proj", 2)) == (0, 3)


def test_what_a_config_leaves_out_is_as_in_peft() -> None:
    found = parse_adapter_config({"peft_type": "LORA"}, "here")
    assert found.scale("q_proj", 4) == 2, "an alpha of 8"
    assert not (found.rslora or found.fan_in_fan_out or found.dora)
    rooted = parse_adapter_config({"peft_type": "LORA", "use_rslora": True}, "here")
    assert rooted.scale("q_proj", 5) == 8 / math.sqrt(5)
