"""Promise: a merge that unites vocabularies is resumed as any other, to the same bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from crashing import Bench, Driver
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model

RECIPE = """\
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.6}}
  - {model: code, parameters: {weight: 0.4}}
parameters: {density: 0.5}
dtype: float32
out_dtype: bfloat16
tokenizer:
  source: union
  pad_to_multiple_of: 64
  tokens:
    t5: {source: {kind: zero}, force: true}
    "<new>": {source: math}
chat_template: chatml
"""
POINTS = 6


@pytest.fixture(scope="module")
def strangers(workplace: Path) -> Path:
    """Write `base`, `math` and `code` with vocabularies of other tokens in other orders."""
    folder = workplace / "strangers"
    for seed, name in enumerate(("base", "math", "code")):
        tokens = [f"t{number}" for number in range(160)]
        random.Random(seed).shuffle(tokens)
        tokens = [*tokens[:130], *(["<new>"] if name == "math" else [])]
        config = {**LLAMA, "num_hidden_layers": 2, "vocab_size": len(tokens) + 3 * seed}
        write_model(folder / name, random_tensors(llama_shapes(config), seed), config)
        vocab = {token: number for number, token in enumerate(tokens)}
        facts = {"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}
        (folder / name / "tokenizer.json").write_text(json.dumps(facts))
    return folder


def test_killed_and_resumed(drivers: list[Driver], workplace: Path, strangers: Path) -> None:
    bench = Bench(drivers, workplace / "of strangers", strangers, RECIPE, {"shard_size": 8000})
    ended, reference = bench.calm()
    operations = len(ended.kinds)
    assert json.loads(reference["config.json"])["vocab_size"] == 192
    bench.check_kills(reference, operations, POINTS)
