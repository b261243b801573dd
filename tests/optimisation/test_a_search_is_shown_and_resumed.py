"""Promise: `status` shows the searches of this machine, and `resume` goes on with one of them."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from searched import TWO_NUMBERS, command, evaluation, history, place_of, search

import resumerge
from resumerge.errors import InputError

KEYS = {
    "id", "state", "output", "space", "study", "created", "counts", "objectives", "best_trial",
    "best_value", "command", "problem", "batch", "jobs",
}  # fmt: skip
ALL_KEYS = KEYS | {
    "sampler", "seed", "parameters", "trials", "best", "best_recipe", "importances",
}  # fmt: skip


def resumerge_in(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in another folder than the search's."""
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "resumerge", *map(str, words)],
        cwd=elsewhere,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def status(place: Path, *words: object, out: str = "out") -> Any:
    done = resumerge_in(place, "status", *words, "--json", "--state-dir", place / f"{out}.state")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KILLED = """
import os, signal, resumerge.optimisation.run as run
whole = run.evaluate
def evaluate(command, candidates, *given):
    if candidates[0].number == 3: os.kill(os.getpid(), signal.SIGKILL)
    return whole(command, candidates, *given)
run.evaluate = evaluate
"""
"""Kills the search in the evaluation of its fourth trial."""


def test_a_search_that_was_killed_is_listed_and_resumed_from_any_folder(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    words = ("--trials", 12, "--seed", 3, "--keep-best", 2)
    assert command(place, *words, before=KILLED).returncode == -9
    [found] = status(place)["searches"]
    assert found.keys() == KEYS
    assert found["state"] == "interrupted"
    assert found["counts"] == {"total": 12, "complete": 3, "failed": 0}
    assert found["output"] == str(place / "out")
    rows = status(place, place / "out")["searches"][0]["trials"]
    assert [row["state"] for row in rows] == ["complete"] * 3 + ["interrupted"]
    best = max(rows[:3], key=lambda row: row["values"])
    assert (found["best_trial"], found["best_value"]) == (best["number"], best["values"][0])
    listed = resumerge_in(place, "status", "--state-dir", place / "out.state").stdout
    assert "3 of 12 trials" in listed and f"in trial {best['number']}" in listed
    [resume] = re.findall(r"resumerge (resume .*)", listed)
    done = resumerge_in(place, *resume.split())
    assert done.returncode == 0, done.stderr
    assert "trial 3:" in done.stderr and "trial 2:" not in done.stderr
    after = status(place, found["id"])["searches"][0]
    assert after.keys() == ALL_KEYS
    assert (after["state"], after["counts"]["complete"]) == ("done", 12)
    assert after["created"] == found["created"]
    assert command(place, *words, out="calm").returncode == 0
    assert history(after) == history(status(place, place / "calm", out="calm")["searches"][0])


def test_a_resumed_search_keeps_its_options_unless_others_are_given(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert command(place, "--trials", 2, "--no-accounts", "--threads", 1).returncode == 0
    words = status(place)["searches"][0]["command"]
    assert "--no-accounts" in words and words[words.index("--threads") + 1] == "1"
    again = resumerge_in(
        place, "resume", place / "out", "--threads", 2, "--state-dir", place / "out.state", "--json"
    )
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["trials"]) == 2
    words = status(place)["searches"][0]["command"]
    assert "--no-accounts" in words and words[words.index("--threads") + 1] == "2"
    for option in ("--detach", "--no-supervise", "--restart"):
        refused = resumerge_in(
            place, "resume", place / "out", option, "--state-dir", place / "out.state"
        )
        assert refused.returncode == 2, refused.stderr
        assert "resumerge resume [OPTIONS]" in refused.stderr
        assert "a search is resumed without" in refused.stderr and option in refused.stderr


def test_resume_alone_goes_on_with_the_search_whose_trial_is_the_newest_run(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert command(place, "--trials", 5, before=KILLED).returncode == -9
    done = resumerge_in(place, "resume", "--state-dir", place / "out.state", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["trials"]) == 5


def test_python_shows_it_and_says_what_to_call(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    found = search(place, trials=2)
    shown = resumerge.status(place / "out", state_dir=place / "state")
    assert history(shown["searches"][0]) == history(found)
    assert "<svg" in shown._repr_html_()
    assert str(place / "out") in resumerge.status(state_dir=place / "state")._repr_html_()
    with pytest.raises(InputError, match=r"This is a search"):
        resumerge.resume(place / "out", state_dir=place / "state")


def test_the_page_draws_the_history_and_the_front(tmp_path: Path) -> None:
    place = place_of(tmp_path, score=TWO_NUMBERS)
    search(place, trials=8, metrics=("one", "two"), sampler="nsga2", evaluate=evaluation())
    page = tmp_path / "page.html"
    done = resumerge_in(
        place, "status", place / "out", "--html", page, "--state-dir", place / "state"
    )
    assert done.returncode == 0, done.stderr
    [found] = resumerge.status(place / "out", state_dir=place / "state")["searches"]
    text = page.read_text()
    assert text.count("<figure>") == 3, "two objectives, and their Pareto front"
    dots = re.findall(r'class="(dot(?: best)?)" d="M([\d.]+) ([\d.]+)h0"><title>trial (\d+)', text)
    assert len(dots) == 3 * 8
    front = [(float(x), float(y), int(n), "best" in kind) for kind, x, y, n in dots[16:]]
    assert {n for _, _, n, marked in front if marked} == set(found["best"])
    values = {row["number"]: row["values"] for row in found["trials"]}
    by_place = sorted(front, key=lambda point: point[0])
    assert [values[n][0] for _, _, n, _ in by_place] == sorted(v[0] for v in values.values())
    upwards = sorted(front, key=lambda point: -point[1])
    assert [values[n][1] for _, _, n, _ in upwards] == sorted(v[1] for v in values.values())
    assert resumerge_in(
        place, "status", place / "out", "--html", page, "--state-dir", place / "state"
    ).returncode == 0, "a page is replaced"  # fmt: skip


def listed(place: Path) -> Any:
    """Return the status of the whole state folder of `search`."""
    done = resumerge_in(place, "status", "--json", "--state-dir", place / "state")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("damage", ["no database", "no tables", "no settings", "no numbers"])
def test_a_study_that_is_damaged_is_one_line_of_the_list(tmp_path: Path, damage: str) -> None:
    """Runs and other searches are shown as before; `status` of this study alone ends with 75."""
    place = place_of(tmp_path)
    search(place, trials=1)
    before = listed(place)
    whole = before["searches"]
    damaged = place / "state" / "searches" / "gone-0123456789abcdef" / "study.db"
    damaged.parent.mkdir()
    damaged.write_bytes(Path(whole[0]["study"]).read_bytes())
    if damage == "no database":
        damaged.write_bytes(b"no database" * 500)
    else:
        with closing(sqlite3.connect(damaged)) as study:
            study.execute({
                "no tables": "DROP TABLE trials",
                "no settings": "DELETE FROM study_user_attributes WHERE key = 'asked'",
                "no numbers": "UPDATE study_user_attributes SET value_json = '[]'",
            }[damage])  # fmt: skip
            study.commit()
    found = listed(place)
    assert found["runs"] == before["runs"] != []
    first, second = found["searches"]
    assert [first] == whole
    assert second.keys() == KEYS and second["state"] == "failed"
    assert second["study"] == str(damaged) in second["problem"]
    shown = resumerge_in(place, "status", "--state-dir", place / "state")
    assert shown.returncode == 0 and str(place / "out") in shown.stdout
    assert "".join(second["problem"].split()) in "".join(shown.stdout.split())
    alone = resumerge_in(place, "status", damaged.parent.name, "--state-dir", place / "state")
    assert alone.returncode == 75 and str(damaged) in alone.stderr.replace("\n", "")
