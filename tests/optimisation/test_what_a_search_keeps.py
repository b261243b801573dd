"""Promise: the best recipe and model stay, other models are removed, and no file of the user is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from merging import working_in
from searched import command, evaluation, place_of, search

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError
from resumerge.options import Options


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return place_of(tmp_path)


def models_of(place: Path) -> set[int]:
    return {int(p.parent.name) for p in (place / "out" / "trials").glob("*/model")}


def test_the_best_recipe_makes_the_best_model(place: Path) -> None:
    found = search(place, keep_best=2)
    values = {row["number"]: row["values"][0] for row in found["trials"]}
    ranked = sorted(values, key=lambda number: -values[number])
    assert found["best"] == ranked[:1]
    assert models_of(place) == set(ranked[:2])
    out = place / "out"
    assert (out / "best").resolve() == out / "trials" / f"{ranked[0]:04}" / "model"
    with working_in(place):
        Session(Options(state_dir=place / "other")).run(out / "best.yaml", place / "again")
    same = (place / "again" / "model.safetensors").read_bytes()
    assert same == (out / "best" / "model.safetensors").read_bytes()
    runs = resumerge.status(state_dir=place / "state")["runs"]
    assert {run["state"] for run in runs} == {"done"} and len(runs) == 2, "ledgers of kept models"
    assert resumerge.verify(out / "best", state_dir=place / "state").damaged == {}


def test_what_the_user_put_there_stays(place: Path) -> None:
    search(place, trials=2)
    [kept] = models_of(place)
    mine = place / "out" / "trials" / f"{kept:04}" / "model" / "notes.txt"
    mine.write_text("mine")
    (place / "out" / "best.yaml").write_text("mine: too")
    search(place, trials=3, keep_best=0)
    assert mine.read_text() == "mine"
    assert [path.name for path in mine.parent.iterdir()] == ["notes.txt"]
    assert (place / "out" / "best.yaml.kept").read_text() == "mine: too"
    assert not (place / "out" / "best").is_symlink()


def test_trials_of_another_state_folder_are_not_touched(place: Path) -> None:
    search(place, trials=1)
    (place / "state").rename(place / "elsewhere")
    with pytest.raises(InputError, match="has trials already") as refused:
        search(place, trials=1)
    assert "--state-dir" in refused.value.problems[0].fix


def test_a_model_that_is_not_there_is_told_at_its_line_and_nothing_is_written(place: Path) -> None:
    text = (place / "space.yaml").read_text().replace("model: code", "model: ./nowhere")
    (place / "space.yaml").write_text(text)
    with pytest.raises(InputError) as refused:
        search(place)
    assert "nowhere" in str(refused.value)
    assert {problem.line for problem in refused.value.problems} == {4}
    assert not (place / "out").exists() and not (place / "state" / "searches").exists()


def test_what_cannot_be_meant_is_refused(place: Path) -> None:
    for asked, what in (
        ({"evaluate": "score"}, "does not name the model"),
        ({"sampler": "bayes"}, "no sampler 'bayes'"),
        ({"directions": ("up",)}, "no direction 'up'"),
        ({"metrics": ("a", "b"), "directions": ("minimize",) * 3}, "do not fit"),
        ({"metrics": ("a", "a")}, "do not fit"),
        ({"trials": 0}, "--trials"),
        ({"keep_best": -1}, "--keep-best"),
        ({"timeout": 0.0}, "--timeout"),
    ):
        with pytest.raises(InputError, match=what):
            search(place, **asked)
    assert not (place / "out").exists()


def test_without_optuna_the_command_says_what_to_install(place: Path) -> None:
    missing = command(place, before="import sys; sys.modules['optuna'] = None")
    assert missing.returncode == 2
    assert "pip install 'resumerge[search]'" in missing.stderr
    assert not (place / "out").exists()


def test_the_command_and_the_function_say_the_same(place: Path) -> None:
    done = command(place, "--trials", 3, "--json", "--seed", 2)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["state"] for row in document["trials"]] == ["complete"] * 3
    shown = command(place, "--trials", 3, "--seed", 2)
    assert "trial 0:" not in shown.stderr, "nothing is done again"
    best = document["best"][0]
    assert f"best: trial {best}" in shown.stdout
    assert "merge_method: linear" in shown.stdout
    with working_in(place):
        found = resumerge.search(
            "space.yaml", "out", evaluation(), trials=3, seed=2, state_dir="out.state"
        )
    assert {**found} == document
    assert f"best: trial {best}" in __import__("IPython").lib.pretty.pretty(found)


def test_a_finished_grid_is_told(place: Path) -> None:
    text = (place / "space.yaml").read_text()
    text = text.replace("high: 1}", "high: 1, step: 1}")
    text = text.replace("{suggest: float, low: 0.1, high: 10, log: true}", "1")
    (place / "space.yaml").write_text(text)
    assert sys.executable in evaluation()
    found = search(place, sampler="grid", trials=99)
    assert len(found["trials"]) == 4
