"""Tokenizers of Hub models are read before any weight; units wait for the files of their rows."""

from __future__ import annotations

import json
from pathlib import Path

from loopback_hub import Hub
from merging import merge, shards_of, working_in
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model

import resumerge

RECIPE = """
merge_method: linear
parameters: {{weight: 1}}
models: [{{model: {0}/a}}, {{model: {0}/b}}]
tokenizer:
  source: union
  tokens:
    t3: {{source: {0}/c, force: true}}
"""


def families(folder: Path) -> Path:
    """Write `a`, `b` and `c`, each with its tokens in another order, and return the folder."""
    for seed, name in enumerate("abc"):
        tokens = [f"t{number}" for number in range(40 + seed)]
        tokens = tokens[seed:] + tokens[:seed]
        config = {**LLAMA, "num_hidden_layers": 1, "vocab_size": len(tokens)}
        model = write_model(folder / name, random_tensors(llama_shapes(config), seed), config)
        vocab = {token: number for number, token in enumerate(tokens)}
        facts = {"model": {"type": "BPE", "vocab": vocab, "merges": []}}
        (model / "tokenizer.json").write_text(json.dumps(facts))
    return folder


def test_the_same_as_of_local_models(hub: Hub, tmp_path: Path) -> None:
    local = families(tmp_path / "local")
    for name in "abc":
        hub.commit(f"org/{name}", {p.name: p.read_bytes() for p in (local / name).iterdir()})
    (tmp_path / "hub.yaml").write_text(RECIPE.format("org"))
    with working_in(tmp_path):
        planned = resumerge.plan("hub.yaml")
    assert planned["problems"] == []
    assert planned["download"]["files"] == 3, "of the third, only rows are read, but they are"
    expected = merge(tmp_path, RECIPE.format("local"), tmp_path / "one")
    found = merge(tmp_path, RECIPE.format("org"), tmp_path / "two")
    assert shards_of(found) == shards_of(expected)
    assert (found / "tokenizer.json").read_bytes() == (expected / "tokenizer.json").read_bytes()
