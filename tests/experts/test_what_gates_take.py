"""Gates of hidden states count in `plan`'s memory and time; a device may be named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dense_models import CONFIGS, mixture, write_dense
from merging import merge, working_in

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.experts.upcycling.gates.decoder import Decoder
from resumerge.experts.upcycling.gates.embedding import EmbeddedPrompts
from resumerge.experts.upcycling.gates.hidden_states import LOADING_SECONDS
from resumerge.experts.upcycling.gates.prompts import TOKEN_BYTES
from resumerge.host.speed import Speed
from resumerge.options import Options
from resumerge.planning import Plan, estimate
from resumerge.planning.estimates.time import REFERENCE_COMPUTE
from resumerge.recipe import parse_recipe

pytestmark = pytest.mark.cold_start

SPEED = Speed(read=1e9, write=1e9, compute=REFERENCE_COMPUTE)


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dense(tmp_path_factory.mktemp("llama"), CONFIGS["llama"])


def planned(models: Path, mode: str, prompt: str = "Once upon a time") -> Plan:
    recipe = mixture(mode, "mixtral").replace("Once upon a time", prompt)
    with working_in(models):
        return Session(Options()).plan(parse_recipe(recipe))


def seconds(plan: Plan, speed: Speed = SPEED) -> float:
    return estimate(plan).time.seconds(2, speed)[0]


def test_time_counts_the_layers_that_are_computed_first(llamas: Path) -> None:
    plan = planned(llamas, "hidden")
    [step] = estimate(plan).steps
    assert seconds(plan) > seconds(planned(llamas, "cheap_embed")) + step.seconds(2) > 1
    assert "making gates takes longest" in estimate(plan).time.seconds(2, SPEED)[1]
    slow = replace(SPEED, compute=REFERENCE_COMPUTE / 2)
    assert seconds(plan, slow) == pytest.approx(2 * seconds(plan), abs=0.2)


def test_time_grows_with_prompts_and_layers(llamas: Path) -> None:
    short, longer, all_layers = (
        next(iter(estimate(plan).steps)).seconds(1) - LOADING_SECONDS
        for plan in (
            planned(llamas, "hidden"),
            planned(llamas, "hidden", "a song " * 1000),
            planned(llamas, "hidden_norm"),
        )
    )
    assert longer > 5 * short
    assert all_layers == pytest.approx(2 * short), "the last of two layers as well"


def test_each_thread_has_a_text_of_its_own(llamas: Path) -> None:
    """More threads than texts are of no use."""
    plan = planned(llamas, "hidden")
    [step] = estimate(plan).steps
    need = {threads: estimate(plan).memory.need(threads) for threads in (1, 2, 5, 6)}
    of_text = need[2].steps - need[1].steps
    assert of_text > 0 and need[5].steps - need[1].steps == 4 * of_text
    assert need[6].steps == need[5].steps and need[6].least_steps == need[1].steps
    assert step.seconds(6) == step.seconds(5) < step.seconds(2) < step.seconds(1)


def told(models: Path, state: Path, *command: str) -> Any:
    """Run a command in a process of its own, whose memory includes libraries; return its JSON."""
    words = [sys.executable, "-m", "resumerge", *command, "--state-dir", str(state), "--json"]
    printed = subprocess.run(words, cwd=models, check=True, capture_output=True).stdout.decode()
    return None if command[0] == "run" else json.loads(printed)


@pytest.mark.parametrize("mode", ["random", "uniform_random", "cheap_embed", "hidden_norm"])
def test_the_peak_is_predicted(mode: str, llamas: Path, tmp_path: Path, soak: bool) -> None:
    if mode == "uniform_random" and not soak:
        pytest.skip("one way to draw is enough for every day: the other with --soak")
    (tmp_path / "recipe.yaml").write_text(mixture(mode, "mixtral"))
    recipe, state = [str(tmp_path / "recipe.yaml"), str(tmp_path / "out")], tmp_path / "state"
    predicted = told(llamas, state, "plan", *recipe)["memory"]["predicted_peak_rss"]
    told(llamas, state, "run", *recipe)
    [run] = resumerge.status(state_dir=state)["runs"]
    assert run["memory"]["peak_rss"] == pytest.approx(predicted, rel=0.15)


def test_large_vocabularies_take_memory_while_prompts_are_split(llamas: Path) -> None:
    small, large = planned(llamas, "cheap_embed"), planned(llamas, "cheap_embed")
    [step] = estimate(large).steps
    assert isinstance(step, EmbeddedPrompts)
    table = replace(step.table, shape=(step.table.shape[0] + 100_000, *step.table.shape[1:]))
    object.__setattr__(step, "table", table)
    assert (
        estimate(large).memory.need(1).steps - estimate(small).memory.need(1).steps
        == 100_000 * TOKEN_BYTES
    )


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

    def on_cpu(decoder: Decoder, config: dict[str, object], device: str, threads: int = 1) -> None:
        devices.append(device)
        init(decoder, config, "cpu", threads)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(Decoder, "__init__", on_cpu)
    merge(llamas, mixture("hidden", "mixtral"), tmp_path / "out", device="cuda:1")
    assert devices == ["cpu", "cuda:1"], "a look at the shapes, then the work"
