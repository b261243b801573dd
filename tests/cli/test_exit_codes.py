"""0 done, 2 unfit, 75 resumable, 130/143 signals, 1 a bug; and how to go on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from commands import BUG, DISK_FULL, LINEAR, STOPPED_BY, resumerge
from merging import shards_of


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_0_done_and_done_already(place: Path) -> None:
    again = resumerge("run", "linear.yaml", "done", cwd=place)
    assert again.returncode == 0
    assert "already done" in again.stderr
    assert again.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "linear.yaml"],
        ["run", "absent.yaml", "out"],
        ["run", "linear.yaml", "out", "--memory", "much"],
        ["run", "linear.yaml", "out", "--shard-size", "0"],
        ["run", "linear.yaml", "out", "--threads", "0"],
        ["run", "linear.yaml", "out", "--nonsense"],
        ["resume", "nothing-of-that-name"],
        ["status", "nothing-of-that-name"],
        ["verify", "nothing-of-that-name"],
        ["plan", "absent.yaml"],
        ["methods", "lineer"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_2_bad_usage(words: list[str], place: Path) -> None:
    done = resumerge(*words, cwd=place)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "out").exists()


def test_75_a_full_disk_and_the_last_line_resumes(place: Path, tmp_path: Path) -> None:
    out, state = tmp_path / "the out", tmp_path / "the state"
    words = ["run", place / "linear.yaml", out, "--state-dir", state]
    stopped = resumerge(*words, cwd=place, before=DISK_FULL)
    assert stopped.returncode == 75
    assert "disk is full" in stopped.stderr
    command = shlex.split(last_line(stopped.stderr))
    assert command[:2] == ["resumerge", "resume"]
    assert resumerge(*command[1:], cwd=place).returncode == 0
    assert shards_of(out) == shards_of(place / "done")


def test_75_before_there_is_a_run_and_the_last_line_works_from_anywhere(
    place: Path, tmp_path: Path
) -> None:
    recipe = place / "a recipe.yaml"
    recipe.write_text(LINEAR.replace("code", "org/model"))
    stopped = resumerge(
        "run",
        recipe.name,
        tmp_path / "out",
        cwd=place,
        before="import time\ntime.sleep = lambda seconds: None",
        RESUMERGE_STATE_DIR="a state",
        HF_ENDPOINT="http://127.0.0.1:9",
        HF_HUB_OFFLINE="0",
    )
    assert stopped.returncode == 75, stopped.stderr
    recipe.write_text(LINEAR)
    command = shlex.split(last_line(stopped.stderr))
    assert command[:2] == ["resumerge", "run"]
    done = resumerge(*command[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert shards_of(tmp_path / "out") == shards_of(place / "done")
    assert len(list((place / "a state").iterdir())) == 1


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_commits_and_the_last_line_resumes(
    name: str, code: int, place: Path, tmp_path: Path
) -> None:
    words = ["run", place / "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state"]
    stopped = resumerge(*words, "--threads", 1, cwd=place, before=STOPPED_BY.format(name))
    assert stopped.returncode == code
    command = shlex.split(last_line(stopped.stderr))
    assert resumerge(*command[1:], cwd=place).returncode == 0
    assert shards_of(tmp_path / "out") == shards_of(place / "done")


def test_75_verify_found_damage_and_the_last_line_mends_it(place: Path, tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    resumerge("run", place / "linear.yaml", out, "--state-dir", state, cwd=place)
    shard = out / "model.safetensors"
    with shard.open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"wrong")
    found = resumerge("verify", out, "--state-dir", state, cwd=place)
    assert found.returncode == 75
    assert "damaged" in found.stdout
    command = shlex.split(last_line(found.stderr))
    assert resumerge(*command[1:], cwd=place).returncode == 0
    assert resumerge("verify", out, "--state-dir", state, cwd=place).returncode == 0
    assert shards_of(out) == shards_of(place / "done")


def test_1_a_bug(place: Path, tmp_path: Path) -> None:
    done = resumerge("run", "linear.yaml", tmp_path / "out", cwd=place, before=BUG)
    assert done.returncode == 1
    assert "an invariant" in done.stderr
    assert "please report it" in done.stderr


def test_nothing_to_resume(tmp_path: Path) -> None:
    done = resumerge("resume", cwd=tmp_path)
    assert done.returncode == 2
    assert "no run yet" in done.stderr


def test_another_recipe_in_the_folder_of_a_run_is_refused_and_restart_starts_over(
    place: Path, tmp_path: Path
) -> None:
    out, words = tmp_path / "out", ["--state-dir", tmp_path / "state"]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(LINEAR)
    assert resumerge("run", recipe, out, *words, cwd=place).returncode == 0
    recipe.write_text(LINEAR.replace("weight: 1", "weight: 2", 1))
    refused = resumerge("run", recipe, out, *words, cwd=place)
    assert refused.returncode == 2
    assert "models[0].parameters.weight: 1 -> 2" in refused.stderr
    assert resumerge("run", recipe, out, *words, "--restart", cwd=place).returncode == 0
    assert shards_of(out) != shards_of(place / "done")
