"""Promise: a model in GGUF is resumed as any other: after kills and power cuts, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Bench, Driver
from gguf_outputs import write_checkpoint

RECIPE = """\
merge_method: dare_ties
base_model: first
models:
  - {model: second, parameters: {weight: 0.7, density: 0.5}}
out_dtype: q8_0
"""
POINTS = 6


@pytest.fixture(scope="module")
def models(workplace: Path) -> Path:
    """Write two models with tokenizers."""
    folder = workplace / "for gguf"
    folder.mkdir()
    for seed, name in enumerate(("first", "second")):
        write_checkpoint(folder / name, "llama", seed, "bfloat16")
    return folder


def test_one_file_survives_kills_and_power_cuts(
    drivers: list[Driver], workplace: Path, models: Path
) -> None:
    bench = Bench(drivers, workplace / "to gguf", models, RECIPE, {}, "for gguf/out/merged.gguf")
    bench.block, bench.uncommitted_limit = 1 << 15, 1 << 18
    ended, reference = bench.calm()
    assert list(reference) == ["merged.gguf"]
    bench.check_kills(reference, len(ended.kinds), 2 * POINTS)
    bench.check_crashes(range(1, len(ended.kinds), len(ended.kinds) // POINTS), reference, "power")
