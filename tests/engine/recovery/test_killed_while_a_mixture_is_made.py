"""Promise: a mixture of experts is resumed as any merge, and so are the steps before its blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crashing import Bench, Driver
from tiny_models import TWO_LAYERS, write_family
from tokenizers import Tokenizer, models, pre_tokenizers

RECIPE = """\
base_model: base
gate_mode: {}
expert_layout: {}
dtype: bfloat16
experts:
  - {{source_model: math, positive_prompts: [w1 w2 w3], negative_prompts: [w4]}}
  - {{source_model: code, positive_prompts: [w7 w8], noise_scale: 0.01, residual_scale: 0.9}}
"""


@pytest.fixture(scope="module")
def family(workplace: Path) -> Path:
    folder = write_family(workplace / "dense", TWO_LAYERS)
    words = {f"w{number}": number for number in range(TWO_LAYERS["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "base" / "tokenizer.json"))
    (folder / "base" / "tokenizer_config.json").write_text(json.dumps({"unk_token": "w0"}))
    return folder


@pytest.mark.parametrize(
    "gate_mode, layout, points",
    [("cheap_embed", "separate", 10), ("hidden_norm", "packed", 4)],
)
def test_killed_and_resumed(
    drivers: list[Driver],
    workplace: Path,
    family: Path,
    soak: bool,
    gate_mode: str,
    layout: str,
    points: int,
) -> None:
    recipe = RECIPE.format(gate_mode, layout)
    bench = Bench(drivers, workplace / f"of {layout}", family, recipe, {"shard_size": 20_000})
    if gate_mode == "hidden_norm":  # what computes states takes ten seconds to import
        bench.imports = (
            "resumerge.experts.upcycling.gates.decoder",
            "transformers.models.llama.modeling_llama",
        )
    ended, reference = bench.calm()
    assert sum(name.endswith(".safetensors") for name in reference) > 1
    bench.check_kills(reference, len(ended.kinds), len(ended.kinds) if soak else points)
