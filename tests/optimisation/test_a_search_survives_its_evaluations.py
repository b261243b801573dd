"""Promise: an evaluation that crashes, hangs or gives no number is a failed trial, not more."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searched import TWO_NUMBERS, evaluation, history, place_of, search
from waiting import wait_until

from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Interrupted
from resumerge.host.processes import birth
from resumerge.optimisation.evaluation import (
    Candidate,
    TrialFailed,
    evaluate,
    read_metrics,
    values_of,
)

LIMIT = 10_000.0
"""Seconds, which no evaluation takes on any machine."""

CALM = "import sys\nnumber = int(sys.argv[1].split('/')[-2])\n"


@pytest.fixture
def wait_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return a function after which time limits end as soon as a file has a whole line."""

    def wait_for(path: Path) -> None:
        def passed() -> float:
            is_there = path.exists() and path.read_text().endswith("\n")
            return time.monotonic() + (LIMIT if is_there else 0.0)

        monkeypatch.setattr("resumerge.optimisation.evaluation.monotonic", passed)

    return wait_for


def test_a_crash_a_hang_and_a_nan(tmp_path: Path, wait_for: Callable[[Path], None]) -> None:
    place = place_of(
        tmp_path,
        score=CALM + "import os, signal, subprocess, time\n"
        "if number == 1: raise ValueError('no such data')\n"
        "if number == 2: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "if number == 3:\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    open('child', 'w').write(f'{child.pid}\\n')\n"
        "    time.sleep(600)\n"
        "if number == 4: print('nan'); sys.exit()\n"
        "if number == 5: print('perplexity: 7'); sys.exit()\n"
        "if number == 6: sys.exit()\n"
        "if number == 7: print('{\"a\": Infinity}'); sys.exit()\n"
        "print(number)\n",
    )
    wait_for(place / "child")
    found = search(place, trials=9, timeout=LIMIT)
    states = [row["state"] for row in found["trials"]]
    assert states == ["complete", *["failed"] * 7, "complete"]
    errors = [row["error"] for row in found["trials"]]
    assert errors[0] is None
    assert errors[1] == "it exited with code 1: ValueError: no such data"
    assert "signal 11" in errors[2] or "code 139" in errors[2]
    assert errors[3] == "it took longer than 10000 s, and was killed"
    assert errors[4:8] == [
        "value is nan",
        "the last line on stdout is neither a number nor a JSON object: perplexity: 7",
        "it printed nothing on stdout",
        "a is inf",
    ]
    assert found["best"] == [8]
    child = int((place / "child").read_text())
    wait_until(lambda: birth(child) is None)
    models = {p.parent.name for p in (place / "out" / "trials").glob("*/model")}
    assert models == {"0008"}, "models of failed trials are deleted, too"


def test_a_command_that_never_works_ends_the_search(tmp_path: Path) -> None:
    place = place_of(tmp_path, score="raise SystemExit('wrong path')\n")
    with pytest.raises(InputError, match="all of the first 5 trials failed") as refused:
        search(place, trials=30)
    assert "wrong path" in str(refused.value)
    with pytest.raises(InputError, match="all of the first 10 trials failed"):
        search(place, trials=30)


def test_a_search_of_few_trials_that_all_fail_is_no_success(tmp_path: Path) -> None:
    place = place_of(tmp_path, score="raise SystemExit('wrong path')\n")
    for _ in range(2):  # typed again, there is no trial left to do
        with pytest.raises(InputError, match="all of the first 2 trials failed"):
            search(place, trials=2)


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_values_that_make_no_model_are_a_failed_trial(sampler: str, tmp_path: Path) -> None:
    """Weights may sum to zero at the ends of their ranges, and between them."""
    weight = "{weight: {suggest: float, low: -1, high: 1, step: 1}}"
    place = place_of(
        tmp_path,
        space=f"""\
merge_method: linear
models:
  - {{model: math, parameters: {weight}}}
  - {{model: code, parameters: {weight}}}
""",
    )
    found = search(place, sampler=sampler, trials=9)
    failed = {
        tuple(row["parameters"].values()): row["error"]
        for row in found["trials"]
        if row["state"] == "failed"
    }
    assert all(sum(weights) == 0 for weights in failed)
    assert all("no model: The parameters of linear" in error for error in failed.values())
    assert len(failed) == 3 or sampler != "grid"
    assert found["best"], "the others were evaluated"


def test_a_model_that_is_gone_ends_the_search_and_no_trial_has_failed(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    search(place, trials=1)
    (place / "math").rename(place / "away")
    with pytest.raises(InputError, match="math"):
        search(place, trials=3)
    (place / "away").rename(place / "math")
    assert [row["state"] for row in search(place, trials=3)["trials"]] == ["complete"] * 3


def test_several_metrics_need_a_name_and_the_merged_model_is_not_lost(tmp_path: Path) -> None:
    place = place_of(tmp_path, score=TWO_NUMBERS)
    with pytest.raises(InputError, match="several metrics") as refused:
        search(place)
    [problem] = refused.value.problems
    assert problem.found == "one, two" and "--metric one" in problem.fix
    found = search(place, metrics=("two",), directions=("minimize",))
    assert found["objectives"] == [{"metric": "two", "direction": "minimize"}]
    values = [row["values"][0] for row in found["trials"]]
    assert found["best"] == [values.index(min(values))]
    assert [row["metrics"]["two"] for row in found["trials"]] == values
    assert all("one" in row["metrics"] for row in found["trials"])


def test_several_objectives_have_a_front(tmp_path: Path) -> None:
    place = place_of(tmp_path, score=TWO_NUMBERS)
    found = search(
        place,
        metrics=("one", "two"),
        directions=("maximize", "minimize"),
        sampler="nsga2",
        trials=12,
        keep_best=99,
    )
    points = {row["number"]: row["values"] for row in found["trials"]}
    front = {
        n
        for n, (a, b) in points.items()
        if not any((c >= a and d <= b and (c, d) != (a, b)) for c, d in points.values())
    }
    assert set(found["best"]) == front
    assert found["best_recipe"] is None and found["importances"] == {}
    kept = {row["number"] for row in found["trials"] if row["model"]}
    assert kept == front
    assert not (place / "out" / "best").exists()


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("0.5", {"value": 0.5}),
        ("-3", {"value": -3.0}),
        ("1e-3", {"value": 0.001}),
        ('{"a": 1, "b": 0.5, "c": "x", "d": true, "e": {"f": 1}}', {"a": 1.0, "b": 0.5}),
    ],
)
def test_the_numbers_of_a_line(line: str, metrics: dict[str, float]) -> None:
    assert read_metrics(line) == metrics


@pytest.mark.parametrize(
    "line", ["", "x", "[1]", "{}", '{"a": "1"}', "true", "{'a': 1}", "[" * 9999]
)
def test_a_line_without_numbers(line: str) -> None:
    with pytest.raises(TrialFailed):
        read_metrics(line)


def test_a_metric_that_is_not_there() -> None:
    with pytest.raises(TrialFailed, match="no metric 'b', but a"):
        values_of({"a": 1.0}, ("b",))
    assert math.isnan(read_metrics("nan")["value"])


def run(command: str, folder: Path, **given: Any) -> dict[str, float]:
    given = {
        "seconds": None, "jobs": 1, "stop": StopRequest(), "heartbeat": lambda: None, **given
    }  # fmt: skip
    [evaluated] = evaluate(command, [Candidate(0, folder, folder)], **given)
    assert not evaluated.error
    return evaluated.metrics


def test_a_folder_with_a_space_and_braces_of_the_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a 'model'"
    folder.mkdir()
    command = "cd {model} && echo 'x 5 y' | awk '{print $2}' && ls -d {model} >&2"
    assert run(command, folder) == {"value": 5.0}
    assert (folder / "evaluation.err").read_text() == f"{folder}\n"


def test_much_that_is_printed_needs_no_memory_and_does_not_block(tmp_path: Path) -> None:
    assert run("yes | head -c 20000000; echo; echo 3", tmp_path) == {"value": 3}


def test_a_request_to_stop_kills_the_command(tmp_path: Path) -> None:
    stop, pid = StopRequest(), tmp_path / "pid"

    def request() -> None:
        if pid.exists() and pid.read_text().endswith("\n"):
            stop.signum = signal.SIGTERM

    with pytest.raises(Interrupted):
        run("echo $$ > {model}/pid; exec sleep 600", tmp_path, stop=stop, heartbeat=request)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_history_is_that_of_its_values(tmp_path: Path) -> None:
    """Each trial of the history has the value that its evaluation printed."""
    place = place_of(tmp_path, score=CALM + "print(number)\n")
    found = search(place, trials=3, evaluate=evaluation("unused"))
    assert [row[2] for row in history(found)] == [[0.0], [1.0], [2.0]]


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_command_that_is_corrected_begins_anew(batch: int, tmp_path: Path) -> None:
    """Trials of the first command have no value, and their models are removed."""
    place = place_of(tmp_path)
    with pytest.raises(InputError, match="all of the first 5 trials failed") as refused:
        search(place, trials=8, batch=batch, evaluate="python nosuch.py {model}")
    assert "correct it" in refused.value.problems[0].fix
    left = {path.parent.name for path in (place / "out" / "trials").glob("*/model")}
    assert left == {f"{n:04}" for n in range(5, batch * -(-5 // batch))}, "not evaluated yet"
    found = search(place, trials=4, batch=2)
    assert [row["state"] for row in found["trials"]] == ["complete"] * 4
    assert {path.parent.name for path in (place / "out" / "trials").glob("*/model")} == {
        f"{found['best'][0]:04}"
    }
