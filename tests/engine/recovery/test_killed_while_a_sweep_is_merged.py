"""Promise: a sweep is resumed as any other merge, whichever of its outputs were begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Bench, Driver
from tiny_models import TWO_LAYERS, write_family

RECIPE = """\
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.7, density: 0.5}}
  - {model: code, parameters: {weight: 0.4, density: 0.5}}
dtype: float32
out_dtype: bfloat16
sweep:
  lambda: [0.5, 1]
  models[0].parameters.density: [0.3, 1]
"""
POINTS = 12


@pytest.fixture(scope="module")
def family(workplace: Path) -> Path:
    return write_family(workplace / "family", TWO_LAYERS)


def test_killed_and_resumed(
    drivers: list[Driver], workplace: Path, family: Path, soak: bool
) -> None:
    bench = Bench(drivers, workplace / "of a sweep", family, RECIPE, {"shard_size": 20_000})
    ended, reference = bench.calm()
    shards = [name for name in reference if name.endswith(".safetensors")]
    assert len({name.partition("/")[0] for name in shards}) == 4 and len(shards) > 4
    files = [name for name, *_ in ended.written]
    assert files != sorted(files), "all outputs grow together"
    bench.check_kills(reference, len(ended.kinds), len(ended.kinds) if soak else POINTS)
