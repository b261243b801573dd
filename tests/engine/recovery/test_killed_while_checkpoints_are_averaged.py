"""Promise: averages of windows are resumed as any other merge, whichever of them were begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Bench, Driver
from trainings import write_training

RECIPE = """\
average:
  checkpoints: step-*
  window: 3
  stride: 2
  weights: [uniform, {ema: 0.8}]
dtype: float32
out_dtype: bfloat16
"""
POINTS = 8


@pytest.fixture(scope="module")
def training(workplace: Path) -> Path:
    return write_training(workplace / "training", 7)


def test_killed_and_resumed(
    drivers: list[Driver], workplace: Path, training: Path, soak: bool
) -> None:
    bench = Bench(drivers, workplace / "of an average", training, RECIPE, {"shard_size": 20_000})
    ended, reference = bench.calm()
    assert len({name.partition("/")[0] for name in reference if name.endswith("tensors")}) == 6
    bench.check_kills(reference, len(ended.kinds), len(ended.kinds) if soak else POINTS)
