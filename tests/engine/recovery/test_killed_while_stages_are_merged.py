"""Promise: a merge of several stages is resumed as any other, with the stages that it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Bench, Driver
from tiny_models import TWO_LAYERS, write_family

RECIPE = """\
name: first
merge_method: linear
models:
  - {model: math, parameters: {weight: 0.7}}
  - {model: code, parameters: {weight: 0.4}}
dtype: bfloat16
---
name: second
merge_method: dare_ties
base_model: base
models:
  - {model: first, parameters: {weight: 0.7, density: 0.5}}
  - {model: code, parameters: {weight: 0.4, density: 0.5}}
dtype: float32
---
merge_method: ties
base_model: base
models:
  - {model: first, parameters: {weight: 0.7, density: 0.5}}
  - {model: second, parameters: {weight: 0.4, density: 0.5}}
dtype: float32
out_dtype: bfloat16
"""
POINTS = 12


@pytest.fixture(scope="module")
def family(workplace: Path) -> Path:
    return write_family(workplace / "family", TWO_LAYERS)


def test_killed_and_resumed(
    drivers: list[Driver], workplace: Path, family: Path, soak: bool
) -> None:
    options = {"shard_size": 20_000, "keep": ["second"], "materialize": "always"}
    bench = Bench(drivers, workplace / "of stages", family, RECIPE, options)
    ended, reference = bench.calm()
    assert sum(name.endswith(".safetensors") for name in reference) > 1
    assert any(name.startswith("stages/second/") for name in reference)
    assert any("deleted" in kind for kind in ended.kinds), set(ended.kinds)
    bench.check_kills(reference, len(ended.kinds), len(ended.kinds) if soak else POINTS)
