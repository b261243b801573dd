"""Promise: a quantised weight is read as the library of its scheme dequantises it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from quantised_files import exact, numbers, written
from quantised_models import SCHEMES, gpt_oss_experts

from resumerge.quantisation import QUANTISATIONS, Checkpoint, Weight
from resumerge.quantisation.scheme import Scheme

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


@dataclass
class Noted(Scheme):
    """A scheme whose class is added to `found` once it finds a weight."""

    scheme: Scheme
    found: set[type[Scheme]]

    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        for weight in self.scheme.weights(checkpoint):
            self.found.add(type(self.scheme))
            yield weight


def test_there_is_a_weight_of_every_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new scheme needs a function in `SCHEMES`, which makes a weight."""
    found: set[type[Scheme]] = set()
    noted = tuple(Noted(scheme, found) for scheme in QUANTISATIONS)
    monkeypatch.setattr("resumerge.quantisation.QUANTISATIONS", noted)
    experts, _, config = gpt_oss_experts(3, 64, 24, 4)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    written(tmp_path / "experts", {name + key: value for key, value in experts.items()}, config)
    for number, (scheme, make) in enumerate(SCHEMES.items()):
        stored, _, config = make(*SHAPES.get(scheme, USUAL), 1)
        written(tmp_path / f"{number}", {f"m.{key}": v for key, v in stored.items()}, config)
    assert {type(scheme) for scheme in QUANTISATIONS} == found


def test_experts_of_gpt_oss_are_transposed(tmp_path: Path) -> None:
    stored, expected, config = gpt_oss_experts(3, 64, 24, 4)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    source = written(tmp_path, {name + key: value for key, value in stored.items()}, config)
    tensor = source.tensors[name].exact
    assert tensor.shape == expected.shape
    assert np.array_equal(numbers(source, tensor).reshape(expected.shape), expected.numpy())
    part = numbers(source, tensor, 100, 3000)
    assert np.array_equal(part, expected.numpy().reshape(-1)[100:3000])


@pytest.mark.parametrize("shape", [(32, 4096), (200, 384), (3, 32, 4096)])
def test_blocks_as_many_as_rows_are_blocks(shape: tuple[int, ...], tmp_path: Path) -> None:
    """The shape of the scales, not their number, decides what each scale belongs to."""
    *stack, rows, columns = shape
    codes = torch.ones(shape).to(torch.float8_e4m3fn)
    grid = (*stack, -(-rows // 128), columns // 128)
    scales = torch.arange(1, 1 + torch.Size(grid).numel()).float().reshape(grid)
    source = written(tmp_path, {"m.weight": codes, "m.scale": scales}, {})
    found = numbers(source, exact(source, "m.weight")).reshape(shape)
    wide = scales.repeat_interleave(128, -1).repeat_interleave(128, -2)[..., :rows, :]
    assert np.array_equal(found, wide.numpy())


def test_a_scale_for_each_row_or_each_expert(tmp_path: Path) -> None:
    codes = torch.ones(3, 4, 8).to(torch.float8_e4m3fn)
    for number, shape in enumerate(((3,), (3, 1), (3, 1, 1), (3, 4), (3, 4, 1))):
        scales = torch.arange(1, 1 + torch.Size(shape).numel()).float().reshape(shape)
        source = written(tmp_path / str(number), {"m": codes, "m_scale": scales}, {})
        found = numbers(source, exact(source, "m")).reshape(3, 4, 8)
        wide = scales.reshape(3, -1, 1).expand(3, 4, 1) if len(shape) < 2 or shape[1] == 1 else None
        expected = wide if wide is not None else scales.reshape(3, 4, 1)
        assert np.array_equal(found, expected.expand(3, 4, 8).numpy())


def test_scales_of_activations_and_caches_are_no_weights(tmp_path: Path) -> None:
    stored, _, config = SCHEMES["float8 tensor"](32, 64, 5)
    of_caches = ("m.k_scale", "m.v_scale", "m.input_scale", "n.output_scale", "n.q_scale")
    scales = {name: torch.ones(1) for name in of_caches}
    named = {f"m.{key}": value for key, value in stored.items()}
    source = written(tmp_path, {**named, **scales, "n.scale": torch.ones(3)}, config)
    assert source.tensors.keys() == {"m.weight", "n.scale"}
    assert {each.tensor.name for each in source.left_out} == set(of_caches)
    alone = written(tmp_path / "plain", {**scales, "m.weight": torch.ones(3, 3)}, {})
    assert alone.tensors.keys() == {"m.weight", *of_caches}
