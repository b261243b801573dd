"""Promise: `plan`, the end of a run and `status` report the same use of every tensor, however often
the run was stopped; --strict refuses, before anything is written, a merge that leaves tensors out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import DISK_FULL, resumerge
from safetensors.numpy import load_file, save_file
from tiny_models import write_family

RECIPE = "merge_method: linear\nmodels: [{model: a}, {model: b}]\nparameters: {weight: 0.5}\n"
NOT_USED = "not used: 1 for which the architecture of the output has no place (value_head.weight)"
LINES = ["every tensor is used: 39 of a", f"39 of 40 tensors of b are used; {NOT_USED}"]
NO_REASON = "from resumerge.planning import planner\nplanner.unnamed_tensors = lambda *_: ()"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Make two models, `a` and `b`, of which `b` has one tensor more, and a recipe."""
    write_family(tmp_path)
    (tmp_path / "math").rename(tmp_path / "a")
    (tmp_path / "code").rename(tmp_path / "b")
    file = tmp_path / "b" / "model.safetensors"
    save_file({**load_file(file), "value_head.weight": np.ones((1, 16), np.float32)}, file)
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def document(models: Path, *words: str) -> Any:
    return json.loads(resumerge(*words, "--json", cwd=models).stdout)


def lines_of(text: str) -> list[str]:
    return [line.removeprefix("tensors: ") for line in text.splitlines() if "tensors: " in line[:9]]


def test_a_run_that_was_stopped_tells_what_the_plan_told(models: Path) -> None:
    planned = document(models, "plan", "r.yaml", "--tensors")["accounts"]
    assert resumerge("run", "r.yaml", "out", cwd=models, before=DISK_FULL).returncode == 75
    [stopped] = document(models, "status", "out", "--tensors")["runs"]
    assert planned.items() <= stopped["accounts"].items()
    resumed = resumerge("resume", "out", cwd=models, COLUMNS="1000")
    assert (resumed.returncode, lines_of(resumed.stderr)) == (0, LINES)
    [done] = document(models, "status", "out", "--tensors")["runs"]
    whole = resumerge("run", "r.yaml", "whole", cwd=models, COLUMNS="1000")
    assert lines_of(whole.stderr) == LINES
    [uninterrupted] = document(models, "status", "whole", "--tensors")["runs"]
    assert done["accounts"] == uninterrupted["accounts"]
    assert planned.items() <= done["accounts"].items()


def test_the_lists_are_given_on_demand(models: Path) -> None:
    accounts = document(models, "plan", "r.yaml")["accounts"]
    every = document(models, "plan", "r.yaml", "--tensors")["accounts"]
    [norm] = (each for each in every.pop("outputs") if each["name"] == "model.norm.weight")
    assert norm["from"] == [{"model": m, "tensor": "model.norm.weight"} for m in "ab"]
    assert norm["generated"] is False
    assert accounts == every
    refused = resumerge("plan", "r.yaml", "--tensors", cwd=models)
    assert (refused.returncode, "--tensors needs --json" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_strict_merge_leaves_nothing_out(command: str, models: Path) -> None:
    before = sorted(models.rglob("*"))
    refused = resumerge(command, "r.yaml", "out", "--strict", cwd=models, COLUMNS="1000")
    assert refused.returncode == 2
    told = refused.stderr + refused.stdout
    for said in ("1 tensor would not be used", "b", "because of --strict", "value_head.weight"):
        assert said in told
    assert sorted(models.rglob("*")) == before


def test_a_tensor_that_is_not_used_for_no_reason_is_refused(models: Path) -> None:
    before = sorted(models.rglob("*"))
    refused = resumerge("run", "r.yaml", "out", cwd=models, before=NO_REASON, COLUMNS="1000")
    assert refused.returncode == 2
    assert "1 tensor would be lost" in refused.stderr
    assert "value_head.weight" in refused.stderr
    assert sorted(models.rglob("*")) == before
