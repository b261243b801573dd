"""What transformers can load is merged, without a table of architectures, and loads again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from loading import loaded, output
from logits import assert_same
from merging import merge, tensors_of
from zoo import ARCHITECTURES

RECIPES = {
    "ties": """
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.5, density: 0.6}}
  - {model: code, parameters: {weight: 0.5, density: [0.4, 0.8]}}
""",
    "itself": """
merge_method: linear
models:
  - {model: base, parameters: {weight: 0.5}}
  - {model: ./base, parameters: {weight: 0.5}}
dtype: float32
""",
}
STACKING = [name for name, architecture in ARCHITECTURES.items() if architecture.stack]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_merges_load_with_every_tensor_and_no_other(
    name: str, family: Callable[[str], Path], tmp_path: Path
) -> None:
    models = family(name)
    merged = {
        kind: output(name, loaded(name, merge(models, recipe, tmp_path / kind)))
        for kind, recipe in RECIPES.items()
    }
    original = output(name, loaded(name, models / "base"))
    assert_same(merged["itself"], original)
    assert not torch.equal(merged["ties"], original)


@pytest.mark.parametrize("name", STACKING)
def test_layers_stack(name: str, family: Callable[[str], Path], tmp_path: Path) -> None:
    recipe = """
merge_method: passthrough
slices:
  - sources: [{model: base, layer_range: [0, 4]}]
  - sources: [{model: code, layer_range: [2, 4]}]
"""
    out = merge(family(name), recipe, tmp_path / "out")
    stack = ARCHITECTURES[name].stack
    assert {f"{stack}.{i}" for i in range(6)} == {
        ".".join(name.split(".")[: str(stack).count(".") + 2])
        for name in tensors_of(out)
        if name.startswith(f"{stack}.")
    }
    output(name, loaded(name, out))
