"""Gates of hidden states count in what `plan` says of memory and time; a device may be named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dense_models import CONFIGS, mixture, write_dense
from merging import merge, working_in

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.host.speed import Speed
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.planning.estimates.memory import steps_of_plan
from resumerge.planning.estimates.time import REFERENCE_COMPUTE, merge_seconds
from resumerge.planning.upcycling.gates.decoder import Decoder
from resumerge.planning.upcycling.gates.hidden_states import LOADING_SECONDS
from resumerge.recipe import parse_recipe

SPEED = Speed(read=1e9, write=1e9, compute=REFERENCE_COMPUTE)


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dense(tmp_path_factory.mktemp("llama"), CONFIGS["llama"])


def planned(models: Path, mode: str, prompt: str = "Once upon a time") -> Plan:
    recipe = mixture(mode, "mixtral").replace("Once upon a time", prompt)
    with working_in(models):
        return Session(Options()).plan(parse_recipe(recipe))


def seconds(plan: Plan, speed: Speed = SPEED) -> float:
    return merge_seconds(plan, 2, speed)[0]


def test_time_counts_the_layers_that_are_computed_first(llamas: Path) -> None:
    plan = planned(llamas, "hidden")
    [step] = steps_of_plan(plan)
    assert seconds(plan) > seconds(planned(llamas, "cheap_embed")) + step.seconds > 1
    assert "making gates takes longest" in merge_seconds(plan, 2, SPEED)[1]
    slow = replace(SPEED, compute=REFERENCE_COMPUTE / 2)
    assert seconds(plan, slow) == pytest.approx(2 * seconds(plan), abs=0.2)


def test_time_grows_with_prompts_and_layers(llamas: Path) -> None:
    short, longer, all_layers = (
        steps_of_plan(plan).pop().seconds - LOADING_SECONDS
        for plan in (
            planned(llamas, "hidden"),
            planned(llamas, "hidden", "a song " * 1000),
            planned(llamas, "hidden_norm"),
        )
    )
    assert longer > 5 * short
    assert all_layers == pytest.approx(2 * short), "the last of two layers as well"


def test_the_peak_is_predicted(llamas: Path, tmp_path: Path) -> None:
    """Most of it is torch and transformers, which a real process imports."""
    (tmp_path / "recipe.yaml").write_text(mixture("hidden_norm", "mixtral"))
    words = ["--state-dir", str(tmp_path / "state"), "--json"]

    def told(*command: str) -> str:
        program = [sys.executable, "-m", "resumerge", *command, *words]
        return subprocess.run(program, cwd=llamas, check=True, capture_output=True).stdout.decode()

    recipe = [str(tmp_path / "recipe.yaml"), str(tmp_path / "out")]
    predicted = json.loads(told("plan", *recipe))["memory"]["predicted_peak_rss"]
    told("run", *recipe)
    [run] = json.loads(told("status"))["runs"]
    assert run["memory"]["peak_rss"] == pytest.approx(predicted, rel=0.15)


def test_a_device_that_is_not_here_is_refused(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match=r"does not have the device(.|\n)*cuda:1"):
        merge(llamas, mixture("hidden", "mixtral"), tmp_path / "out", device="cuda:1")
    assert not (tmp_path / "out").exists()


def test_layers_are_computed_on_the_device(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []
    init = Decoder.__init__

    def on_cpu(decoder: Decoder, config: dict[str, object], device: str) -> None:
        devices.append(device)
        init(decoder, config, "cpu")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(Decoder, "__init__", on_cpu)
    merge(llamas, mixture("hidden", "mixtral"), tmp_path / "out", device="cuda:1")
    assert devices == ["cpu", "cuda:1"], "a look at the shapes, then the work"
