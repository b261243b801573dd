"""Promise: a quantised weight is read as the library of its scheme dequantises it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from quantised_files import exact, numbers, written
from quantised_models import SCHEMES, gpt_oss_experts

SHAPES = {"fp8 block": (200, 300), "float8 block": (256, 384), "int4 group": (40, 96)}
USUAL = (56, 192)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_number_is_the_librarys(scheme: str, tmp_path: Path) -> None:
    rows, columns = SHAPES.get(scheme, USUAL)
    stored, expected, config = SCHEMES[scheme](rows, columns, 1)
    named = {f"model.layers.0.q_proj.{key}": value for key, value in stored.items()}
    source = written(tmp_path, named, config)
    assert source.tensors.keys() == {"model.layers.0.q_proj.weight"}
    tensor = exact(source, "model.layers.0.q_proj.weight")
    assert tensor.shape == expected.shape
    ours = torch.from_numpy(numbers(source, tensor).reshape(expected.shape).copy())
    assert torch.equal(ours.to(expected.dtype), expected), scheme
    assert torch.any(ours != 0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_range_is_that_part_of_the_whole(scheme: str, tmp_path: Path) -> None:
    rows, columns = SHAPES.get(scheme, USUAL)
    stored, _, config = SCHEMES[scheme](rows, columns, 2)
    source = written(tmp_path, {f"m.{key}": value for key, value in stored.items()}, config)
    tensor = exact(source, "m.weight")
    whole = numbers(source, tensor)
    draw = np.random.default_rng(3)
    for _ in range(40):
        start, stop = sorted(draw.integers(0, tensor.numel + 1, 2).tolist())
        assert np.array_equal(numbers(source, tensor, start, stop), whole[start:stop])


def test_experts_of_gpt_oss_are_transposed(tmp_path: Path) -> None:
    stored, expected, config = gpt_oss_experts(3, 64, 24, 4)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    source = written(tmp_path, {name + key: value for key, value in stored.items()}, config)
    tensor = source.tensors[name].exact
    assert tensor.shape == expected.shape
    assert np.array_equal(numbers(source, tensor).reshape(expected.shape), expected.numpy())
    part = numbers(source, tensor, 100, 3000)
    assert np.array_equal(part, expected.numpy().reshape(-1)[100:3000])
