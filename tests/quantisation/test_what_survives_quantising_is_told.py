"""Promise: a run reports how much of a merge's change is left in the numbers of the codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize, quantize
from gguf_outputs import write_checkpoint
from killed_at_a_shard import merge_until_killed
from measurements import measurements
from merging import merge, shards_of, tensors_of, working_in
from quantised_outputs import SCHEMES, linear, stored, write, write_adapter
from small_batches import use_small_batches

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.ledger import UnitMeasurements
from resumerge.options import Options
from resumerge.tensors.quantised.codes import E2M1

SAMPLE = 4096
"""The elements that are measured of a weight of one block."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write(folder / "a", 1)
    write(folder / "b", 2)
    write_adapter(folder / "adapter")
    merge(folder, linear("float32"), folder / "float32")
    return folder


def on_grid(scheme: str, numbers: torch.Tensor, parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return numbers, rounded to the nearest that a weight's scales allow."""
    scales = next(parts[name] for name in parts if "_scale" in name and "global" not in name)
    if scheme == "mxfp4":
        scales = 2.0 ** (scales.float() - 127)
    scales = scales.float()
    if scheme == "nvfp4":
        scales = scales / parts["weight_global_scale"]
    height = numbers.shape[0] // scales.shape[0]
    scales = scales.repeat_interleave(height, 0)
    grid = scales.repeat_interleave(numbers.shape[1] // scales.shape[1], 1)
    scaled = numbers.float() / grid
    if "fp8" in scheme:
        return scaled.clamp(-448, 448).to(torch.float8_e4m3fn).float() * grid
    if scheme == "int4":
        return scaled.round().clamp(-8, 7) * grid
    table = torch.tensor(sorted(set(E2M1.numbers)))
    even = torch.tensor([E2M1.numbers.index(number) % 2 == 0 for number in table.tolist()])
    away = (scaled[..., None] - table).abs()
    near = away == away.amin(-1, keepdim=True)
    first, last = near.int().argmax(-1), len(table) - 1 - near.flip(-1).int().argmax(-1)
    return table[torch.where(even[first], first, last)] * grid


def check(
    found: UnitMeasurements, base: np.ndarray, exact: np.ndarray, y: np.ndarray, c: np.ndarray
) -> None:
    """Compare the measurements of a weight of one block with float64 arithmetic."""
    b, x, y, c = (np.ravel(v)[:SAMPLE].astype(np.float64) for v in (base, exact, y, c))
    moved = x != b
    expected = {
        "measured": SAMPLE,
        "intended": np.square(x - b).sum(),
        "change": np.square(y - c).sum(),
        "moved": moved.sum(),
        "lost": (moved & (y == c)).sum(),
    }
    for name, number in expected.items():
        assert np.isclose(found[name], number, rtol=1e-4, atol=0), name
    assert found["unchanged"] < found.blocks
    assert not any(found[name] for name in ("nans", "infinities", "overflows"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_change_is_that_of_the_dequantised_numbers(
    scheme: str, models: Path, tmp_path: Path
) -> None:
    out = merge(models, linear(scheme), tmp_path / "out")
    parts, base, exact = stored(out), stored(models / "a"), stored(models / "float32")
    found = measurements(tmp_path / "out.state")
    assert found.keys() == exact.keys()
    for name, measured in found.items():
        if "_proj" not in name:
            assert not measured.scheme
            continue
        assert (measured.scheme, measured.elements) == (scheme, exact[name].numel())
        assert measured.models == ("a", "b")
        stem = name.removesuffix("weight")
        own = {n.removeprefix(stem): t for n, t in parts.items() if n.startswith(stem)}
        y, c = (on_grid(scheme, numbers, own) for numbers in (exact[name], base[name]))
        check(measured, base[name].float().numpy(), exact[name].numpy(), y.numpy(), c.numpy())


@pytest.mark.parametrize("scheme", ["q8_0", "q4_0"])
def test_the_change_in_a_gguf_file_is_that_of_its_numbers(scheme: str, tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b")):
        write_checkpoint(tmp_path / name, "qwen3", seed, "bfloat16")
    merge(tmp_path, linear("float32"), tmp_path / "exact")
    exact, base = tensors_of(tmp_path / "exact"), tensors_of(tmp_path / "a")
    out = merge(tmp_path, linear(scheme), tmp_path / "out.gguf")
    found = measurements(tmp_path / "out.gguf.state")
    [tensor] = [t for t in GGUFReader(out).tensors if t.name == "blk.1.ffn_up.weight"]
    kind, name = tensor.tensor_type, "model.layers.1.mlp.up_proj.weight"
    assert found[tensor.name].scheme == kind.name == scheme.upper()
    assert found[tensor.name].elements == exact[name].numel()
    b, x = base[name].float().numpy(), exact[name].numpy()
    y, c = dequantize(np.array(tensor.data), kind), dequantize(quantize(b, kind), kind)
    check(found[tensor.name], b, x, y, c)


def test_what_is_left_of_an_adapters_change_is_told(models: Path, tmp_path: Path) -> None:
    """The base is quantised: its numbers are those that its codes stand for."""
    quantised = merge(models, linear("fp8_block"), tmp_path / "quantised")
    (tmp_path / "adapter").symlink_to(models / "adapter")
    recipe = "merge_method: passthrough\nmodels: [{model: quantised+adapter}]\nout_dtype: "
    out = merge(tmp_path, recipe + "same\n", tmp_path / "out")
    [(name, found)] = measurements(tmp_path / "out.state").items()
    assert name == "model.layers.1.mlp.up_proj.weight" and found.scheme == "float8"
    assert found.models == ("quantised", "quantised+adapter")
    plain = "merge_method: passthrough\nout_dtype: float32\nmodels: [{model: NAME}]\n"
    base, y = (
        stored(merge(tmp_path, plain.replace("NAME", path.name), tmp_path / f"of {path.name}"))
        for path in (quantised, out)
    )
    exact = stored(merge(tmp_path, recipe + "float32\n", tmp_path / "exact"))
    own = {"weight_scale_inv": stored(out)[f"{name}_scale_inv"]}
    c = on_grid("fp8_block", base[name], own)
    check(found, *(t.numpy() for t in (base[name], exact[name], y[name], c)))


@pytest.mark.parametrize("scheme", ["fp8_block", "nvfp4"])
def test_it_is_the_same_after_a_kill_and_in_other_threads(
    scheme: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch)
    size = 200_000
    whole = merge(models, linear(scheme), tmp_path / "whole", shard_size=size, threads=3)
    options = Options(state_dir=tmp_path / "state", shard_size=size)
    config, out = tmp_path / "killed.yaml", tmp_path / "killed"
    config.write_text(linear(scheme))
    with working_in(models):
        merge_until_killed(options, config, out)
        Session(options).run(config, out)
    assert shards_of(out) == shards_of(whole)
    expected = measurements(tmp_path / "whole.state")
    assert any(found.scheme and found.blocks > 2 for found in expected.values())
    assert measurements(tmp_path / "state") == expected


def test_in_a_gguf_file_it_is_the_same_in_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch)
    for seed, name in enumerate(("a", "b")):
        write_checkpoint(tmp_path / name, "qwen3", seed, "bfloat16")
    found = []
    for threads in (1, 3):
        merge(tmp_path, linear("q8_0"), tmp_path / f"{threads}.gguf", threads=threads)
        found.append(measurements(tmp_path / f"{threads}.gguf.state"))
    assert any(own.scheme and own.blocks > 9 for own in found[0].values())
    assert found[0] == found[1]


def small_blocks(patch: pytest.MonkeyPatch) -> None:
    """Make weights have several blocks, of which a few rows are measured."""
    use_small_batches(patch, 20_000)
    patch.setattr("resumerge.kernels.measurements.LEAST_MEASURED", 96)


def test_a_change_that_codes_cannot_hold_is_told(models: Path, tmp_path: Path) -> None:
    """Status, a warning and the model card report that nearly all weights keep their codes."""
    merge(models, linear("fp8_channel"), tmp_path / "quantised")
    plain = "merge_method: passthrough\nmodels: [{model: quantised}]\nout_dtype: float32\n"
    tuned = merge(tmp_path, plain, tmp_path / "tuned")
    from safetensors.torch import save_file

    changed = {name: 1.001 * t if "_proj" in name else t for name, t in stored(tuned).items()}
    for name in changed:  # the scales stay: the largest numbers of rows do
        rows = stored(tuned)[name]
        if "_proj" in name:
            largest = rows.abs() == rows.abs().amax(1, keepdim=True)
            changed[name][largest] = rows[largest]
    save_file(changed, tuned / "model.safetensors", {"format": "pt"})
    text = "merge_method: task_arithmetic\nout_dtype: same\nbase_model: quantised\n"
    text += "models: [{model: tuned, parameters: {weight: 1}}]\n"
    out = merge(tmp_path, text, tmp_path / "out", state_dir=tmp_path / "state")
    [run] = resumerge.status(out, state_dir=tmp_path / "state")["runs"]
    accounts = run["accounts"]
    assert accounts["numbers"]["estimate"]["lost"] == pytest.approx(1, abs=0.05)
    assert accounts["numbers"]["estimate"]["survived"] < 0.3
    [warning] = [text for text in accounts["warnings"] if "float8" in text]
    assert "out_dtype: bfloat16" in warning
    assert "Rounding to float8 took " in (out / "README.md").read_text()


def test_a_plan_counts_the_tensors_of_the_files(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = merge(models, linear("int4"), tmp_path / "out")
    monkeypatch.chdir(models)
    plan = resumerge.plan(tmp_path / "out.yaml", state_dir=tmp_path / "state")
    assert plan["tensors"] == len(stored(out)) > plan["units"]
