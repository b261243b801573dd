"""Promise: each output of an average of checkpoints has the bytes of its linear merge alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_checkpoints import save_alone
from merging import Told, merge, tensors_of, working_in
from trainings import write_training

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.options import Options

RECIPE = """\
average:
  checkpoints: step-*
  window: 3
  stride: 2
  weights: [uniform, 1-sqrt, {ema: 0.8}]
dtype: float32
out_dtype: bfloat16
"""
SMALL = {"shard_size": 20_000}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_training(tmp_path_factory.mktemp("of") / "training", 7)


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_each_output_is_its_linear_merge(training: Path, tmp_path: Path) -> None:
    out = merge(training, RECIPE, tmp_path / "out", **SMALL)
    folders = sorted(path.name for path in out.iterdir() if path.is_dir())
    schedules = "1-sqrt", "ema-0.8", "uniform"
    assert folders == sorted(f"step-{n}_{s}" for n in (12, 20, 28) for s in schedules)
    (tmp_path / "alone").mkdir()
    for name in folders:
        recipe = (out / name / "mergekit_config.yml").read_text()
        assert "merge_method: linear" in recipe and "average" not in recipe
        alone = merge(training, recipe, tmp_path / "alone" / name, **SMALL)
        assert files_of(out / name) == files_of(alone), name


def test_it_is_what_is_computed_in_float64(training: Path, tmp_path: Path) -> None:
    recipe = RECIPE.replace("out_dtype: bfloat16\n", "")
    out = merge(training, recipe, tmp_path / "out", **SMALL)
    weights = [1 - np.sqrt(1 / 3), np.sqrt(2 / 3) * -1 + 1, 0.0]
    weights = [1 - weights[0], weights[0] - weights[1], weights[1]]
    steps = [tensors_of(training / f"step-{n}") for n in (20, 24, 28)]
    for name, found in tensors_of(out / "step-28_1-sqrt").items():
        expected = sum(w * step[name].double() for w, step in zip(weights, steps))
        size = sum(w * step[name].double().abs() for w, step in zip(weights, steps))
        assert (abs(found.double() - expected) <= 2**-22 * size).all(), name


def test_a_new_checkpoint_changes_no_run(training: Path, tmp_path: Path) -> None:
    """A run keeps the checkpoints that it began with, and reports newer ones."""
    folder = shutil.copytree(training, tmp_path / "training")
    out = merge(folder, RECIPE, tmp_path / "out", **SMALL)
    before = files_of(out)
    shutil.copytree(folder / "step-4", folder / "step-32")
    for again in ("resume", "run"):
        (out / "step-12_uniform" / "config.json").unlink()
        told = Told()
        session = Session(Options(state_dir=tmp_path / "out.state", **SMALL), told)
        with working_in(folder):
            _again(session, again, out)
        assert files_of(out) == before
        assert any("step-32" in note and "--restart" in note for note in told.notes)
    merge(folder, RECIPE, out, restart=True, **SMALL)
    assert (out / "step-32_uniform").is_dir()
    with pytest.raises(InputError, match="recipe has changed"):
        merge(folder, RECIPE.replace("0.8", "0.7"), out, **SMALL)


def test_distributed_checkpoints_give_the_same_weights(training: Path, tmp_path: Path) -> None:
    folder = tmp_path / "distributed"
    for step in training.iterdir():
        made = save_alone({"model": tensors_of(step), "step": 3}, folder / step.name)
        shutil.copy(step / "config.json", made)
    out = merge(folder, RECIPE, tmp_path / "a", **SMALL)
    other = merge(training, RECIPE, tmp_path / "b", **SMALL)
    for name in ("step-12_uniform", "step-28_ema-0.8"):
        found, expected = tensors_of(out / name), tensors_of(other / name)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def _again(session: Session, command: str, out: Path) -> None:
    if command == "resume":
        session.resume(str(out))
    else:
        session.run(out.with_name("out.yaml"), out)
