"""Promise: a merge of weight files, or of pipelines of diffusers, is resumed as any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crashing import Bench, Driver
from safetensors.torch import save_file

RECIPE = """\
merge_method: linear
models:
  - {model: first.safetensors, parameters: {weight: 0.7}}
  - {model: second.ckpt, parameters: {weight: 0.4}}
out_dtype: bfloat16
"""
PIPELINES = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: one}, {model: two}]\n"
POINTS = 6


@pytest.fixture(scope="module")
def checkpoints(workplace: Path) -> Path:
    """Write two weight files, each with a tensor that the other lacks."""
    folder = workplace / "checkpoints"
    folder.mkdir()
    draw = torch.Generator().manual_seed(0)
    for name in ("first", "second"):
        names = [*(f"blocks.{k}.weight" for k in range(8)), f"{name}.bias"]
        tensors = {key: torch.randn(40, 30, generator=draw) for key in names}
        if name == "first":
            save_file(tensors, folder / "first.safetensors")
        else:
            torch.save({"state_dict": tensors}, folder / "second.ckpt")
    return folder


@pytest.fixture(scope="module")
def pipelines(workplace: Path) -> Path:
    """Write two pipelines, each of two components with weights and one without."""
    folder = workplace / "pipelines"
    draw = torch.Generator().manual_seed(0)
    for name in ("one", "two"):
        parts = ("unet", "vae", "scheduler")
        for part in parts:
            (folder / name / part).mkdir(parents=True)
        described = {part: ["diffusers", "Some"] for part in parts}
        (folder / name / "model_index.json").write_text(json.dumps(described))
        (folder / name / "scheduler/scheduler_config.json").write_text("{}")
        for part in parts[:2]:
            tensors = {f"{k}.weight": torch.randn(40, 30, generator=draw) for k in range(4)}
            file = f"{part}/diffusion_pytorch_model.safetensors"
            save_file(tensors, folder / name / file)
    return folder


def test_pipelines_are_killed_and_resumed(
    drivers: list[Driver], workplace: Path, pipelines: Path
) -> None:
    bench = Bench(drivers, workplace / "of pipelines", pipelines, PIPELINES, {"shard_size": 10_000})
    ended, reference = bench.calm()
    assert sum(name.endswith(".safetensors") for name in reference) == 4
    bench.check_kills(reference, len(ended.kinds), POINTS)


def test_killed_and_resumed(drivers: list[Driver], workplace: Path, checkpoints: Path) -> None:
    options = {"shard_size": 8000, "tensor_union": True}
    bench = Bench(drivers, workplace / "of checkpoints", checkpoints, RECIPE, options)
    ended, reference = bench.calm()
    operations = len(ended.kinds)
    assert sorted(reference) == ["README.md", "mergekit_config.yml", "model.safetensors"]
    bench.check_kills(reference, operations, POINTS)


def test_one_file_survives_kills_and_power_cuts(
    drivers: list[Driver], workplace: Path, checkpoints: Path
) -> None:
    """The output's folder has no other file afterwards."""
    output = "checkpoints/merged.safetensors"
    bench = Bench(
        drivers, workplace / "to one file", checkpoints, RECIPE, {"tensor_union": True}, output
    )
    ended, reference = bench.calm()
    assert list(reference) == ["merged.safetensors"]
    bench.check_kills(reference, len(ended.kinds), 2 * POINTS)
    bench.check_crashes(range(1, len(ended.kinds), len(ended.kinds) // POINTS), reference, "power")
