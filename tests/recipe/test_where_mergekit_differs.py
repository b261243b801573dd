"""Both programs behave as docs/coming-from-mergekit.md says of their differences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, run_mergekit
from merging import merge, tensors_of
from tiny_models import LLAMA, write_family
from torch import Tensor

WIDER_AT_THE_END = """
dtype: float32
merge_method: linear
slices:
- sources: [{model: math, layer_range: [0, 2]}]
- sources: [{model: math, layer_range: [2, 4]}, {model: code, layer_range: [2, 4]}]
parameters: {weight: 0.5}
"""
AFTER_THE_LAYERS = ("model.norm.weight", "lm_head.weight")

FUSION = """
dtype: {dtype}
merge_method: arcee_fusion
base_model: half/base
models: [{{model: half/math}}]
"""

beside_mergekit = pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write models in float32, larger ones in bfloat16 below `half`, and mergekit's merges."""
    folder = write_family(tmp_path_factory.mktemp("models"))
    half = {**LLAMA, "hidden_size": 64, "head_dim": 32, "dtype": "bfloat16"}
    write_family(folder / "half", half, dtype="bfloat16")
    if MERGEKIT is not None:
        run_mergekit(folder, {"wider": WIDER_AT_THE_END, "fusion": FUSION.format(dtype="bfloat16")})
    return folder


def close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() < 1e-6)


def test_norm_and_head_come_from_all_sources_of_the_last_slice(
    models: Path, tmp_path: Path
) -> None:
    ours = tensors_of(merge(models, WIDER_AT_THE_END, tmp_path / "out"))
    math, code = tensors_of(models / "math"), tensors_of(models / "code")
    for name in AFTER_THE_LAYERS:
        assert close(ours[name], (math[name] + code[name]) / 2)


@beside_mergekit
def test_mergekit_leaves_sources_out_of_norm_and_head(models: Path) -> None:
    theirs, math = tensors_of(models / "wider.mergekit"), tensors_of(models / "math")
    assert all(close(theirs[name], math[name]) for name in AFTER_THE_LAYERS)


@beside_mergekit
def test_in_bfloat16_ours_is_the_one_that_agrees_with_float32(models: Path, tmp_path: Path) -> None:
    ours = tensors_of(merge(models, FUSION.format(dtype="bfloat16"), tmp_path / "ours"))
    exact = tensors_of(merge(models, FUSION.format(dtype="float32"), tmp_path / "exact"))
    assert apart(ours, exact) == 0
    assert 0.02 < apart(tensors_of(models / "fusion.mergekit"), exact) < 0.2


def apart(found: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> float:
    """Return the share of elements that differ from the exact ones by more than 0.001."""
    far = [((found[name].float() - exact[name]).abs() > 1e-3).flatten() for name in exact]
    return float(torch.cat(far).float().mean())
