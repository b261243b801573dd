"""Promise: a batch is one run of the sources, and its trials are what they are alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from IPython.lib.pretty import pretty
from merging import working_in
from searched import ONE_NUMBER, SCORE, Notes, files_of, history, place_of, search

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.swept_model import SweptModel
from resumerge.errors import InputError
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation import evaluation
from resumerge.optimisation.models import TrialModels
from resumerge.options import Options

TOLD = "a batch is merged model by model, not in one run: "


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return place_of(tmp_path)


def events_of(place: Path, number: int) -> list[str]:
    """Return the kinds of events of the run of a trial whose model is kept."""
    model = place / "out" / "trials" / f"{number:04}" / "model"
    [folder] = RunStore(place / "state").of_output(model)
    with closing(Ledger(folder / "ledger.db", read_only=True)) as ledger:
        return [event["kind"] for event in ledger.events.all()]


def swept(place: Path, **asked: Any) -> list[bool]:
    """Return, for each model of a trial, whether its weights were computed with others'."""
    document = search(place, keep_best=99, **asked)
    return [
        "shard_of_sweep" in events_of(place, row["number"])
        for row in document["trials"]
        if row["model"]
    ]


def test_each_model_is_that_of_its_recipe_alone(place: Path) -> None:
    assert swept(place, trials=5, batch=3, jobs=2) == [True] * 5
    runs = RunStore(place / "state").runs()
    assert len(runs) == 5, "the runs of sweeps are gone"
    for number in (0, 2, 4):
        trial, alone = place / "out" / "trials" / f"{number:04}", place / f"{number}" / "model"
        with working_in(place):
            Session(Options(state_dir=place / "other")).run(trial / "recipe.yaml", alone)
        assert files_of(alone) == files_of(trial / "model")


def test_jobs_change_nothing_but_the_time(place: Path) -> None:
    first = search(place, "one", trials=7, batch=4, jobs=3)
    second = search(place, "two", trials=7, batch=4)
    assert history(first) == history(second)
    assert (first["batch"], second["batch"]) == (4, 4)
    [best] = first["best"]
    assert (place / "one" / "best").resolve().parent.name == f"{best:04}"
    of_sweep = place / "one" / "trials" / "0000-0003"
    assert [path.name for path in of_sweep.iterdir()] == ["recipe.yaml"]


def test_the_order_of_results_changes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two evaluations waits until the other has printed its number and has ended.

    Each has begun when the search has written its `evaluation.pid`, which may be late.
    """
    (place / "score.py").write_text(
        "import os, pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[1]).parent\n"
        "other = folder.parent / f'{int(folder.name) + 1:04}'\n"
        "said, runs = other / 'evaluation.out', other / 'evaluation.pid'\n"
        "while not (folder / 'evaluation.pid').exists(): time.sleep(0.01)\n"
        "def is_over(): return said.is_file() and '-' in said.read_text() and not runs.exists()\n"
        "waits = pathlib.Path('backwards').exists() and os.environ['RESUMERGE_JOB'] == '0'\n"
        "while waits and not is_over(): time.sleep(0.01)\n" + ONE_NUMBER
    )
    told: list[int] = []
    result = evaluation._Evaluation.result
    monkeypatch.setattr(
        evaluation._Evaluation,
        "result",
        lambda self: told.append(self.candidate.number) or result(self),
    )
    calm = search(place, "calm", trials=6, batch=2)
    assert told == [0, 1, 2, 3, 4, 5]
    (place / "backwards").touch()
    late = search(place, "late", trials=6, batch=2, jobs=2)
    assert told[6:] == [1, 0, 3, 2, 5, 4]
    assert history(late) == history(calm)


def test_so_many_evaluations_run_at_a_time(place: Path) -> None:
    """Each evaluation waits until all of its batch have begun, and has a job number of its own."""
    (place / "score.py").write_text(
        "import os, pathlib, sys, time\n"
        "begun = pathlib.Path('begun')\n"
        "begun.mkdir(exist_ok=True)\n"
        "(begun / (sys.argv[1].split('/')[-2] + '-' + os.environ['RESUMERGE_JOB'])).touch()\n"
        "while len(list(begun.iterdir())) % 3: time.sleep(0.01)\n"
        "print(1)\n"
    )
    search(place, trials=6, jobs=3)
    begun = sorted(path.name for path in (place / "begun").iterdir())
    assert begun == [f"{number:04}-{number % 3}" for number in range(6)]


def test_jobs_alone_make_a_batch_of_as_many(place: Path) -> None:
    assert search(place, trials=2, jobs=2)["batch"] == 2
    assert search(place, trials=3)["batch"] == 2, "it stays what it was"
    for asked, what, expected in (
        ({"jobs": 3}, "more jobs than trials", "the batch that this search began with"),
        ({"jobs": 3, "batch": 2}, "more jobs than trials", "at most 2 jobs"),
        ({"batch": 4}, "began with another batch", "2"),
        ({"batch": 101}, "--batch is too large", "100"),
        ({"batch": 0}, "--batch is too small", "1 or more"),
        ({"jobs": 0}, "--jobs is too small", "1 or more"),
    ):
        with pytest.raises(InputError, match=what) as refused:
            search(place, trials=9, **asked)
        assert expected in refused.value.problems[0].expected


def test_a_crash_and_a_hang_are_failed_trials_of_the_batch(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "score.py").write_text(
        SCORE + "import os, signal, time\n"
        "number = int(sys.argv[1].split('/')[-2])\n"
        "if number == 1: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "if number == 2: open('hangs', 'w').write('x'); time.sleep(600)\n"
        "if number == 3: print('nan'); sys.exit()\n"
        "print(number)\n"
    )
    limit, passed = 10_000.0, evaluation.monotonic
    monkeypatch.setattr(
        evaluation, "monotonic", lambda: passed() + limit * (place / "hangs").exists()
    )
    # the limits of those that begin later count from then on
    found = search(place, trials=6, batch=6, timeout=limit)
    states = [row["state"] for row in found["trials"]]
    assert states == ["complete", "failed", "failed", "failed", "complete", "complete"]
    assert "killed" in found["trials"][2]["error"] and found["best"] == [5]


ZERO = "{weight: {suggest: float, low: -1, high: 1, step: 1}}"
SUMS = f"""\
merge_method: linear
models:
  - {{model: math, parameters: {ZERO}}}
  - {{model: code, parameters: {ZERO}}}
"""


def test_values_that_make_no_model_do_not_end_the_batch(place: Path) -> None:
    (place / "space.yaml").write_text(SUMS)
    found = search(place, sampler="grid", trials=9, batch=9, keep_best=99)
    failed = [row for row in found["trials"] if row["state"] == "failed"]
    assert len(failed) == 3
    assert all("no model: The parameters of linear" in row["error"] for row in failed)
    assert history(found) == history(search(place, "alone", sampler="grid", trials=9))


def test_equal_trials_are_merged_beside_the_sweep(place: Path) -> None:
    two = "{suggest: categorical, choices: [0.25, 0.75]}"
    (place / "space.yaml").write_text(
        "merge_method: linear\nmodels:\n"
        f"  - {{model: math, parameters: {{weight: {two}}}}}\n"
        "  - {model: code, parameters: {weight: 1}}\n"
    )
    notes = Notes()
    together = swept(place, trials=6, batch=6, sampler="random", reporter=notes)
    assert together.count(True) == 2
    assert not any(TOLD in note for note in notes.notes)


@pytest.mark.parametrize(
    "space",
    [
        # gradients, filters, a slice, the method: whatever one value stands for
        """\
slices:
  - sources:
    - {model: math, layer_range: [0, 1]}
    - model: code
      layer_range: [0, 1]
      parameters:
        weight: [{filter: mlp, value: {suggest: float, low: 0, high: 1}}, {value: 0.5}]
merge_method: linear
parameters: {weight: [0.5, {suggest: float, low: 0.1, high: 1}]}
""",
        """\
merge_method: {suggest: categorical, choices: [task_arithmetic, ties]}
base_model: math
models:
  - {model: code, parameters: {weight: {suggest: float, low: 0.5, high: 1, name: w}}}
parameters: {lambda: {suggest: float, low: 0.5, high: 1, name: w}}
dtype: {suggest: categorical, choices: [float32, bfloat16]}
""",
    ],
    ids=["places", "methods"],
)
def test_what_a_sweep_can_vary(space: str, place: Path) -> None:
    (place / "space.yaml").write_text(space)
    assert all(swept(place, trials=4, batch=4, sampler="random", evaluate="sh -c 'echo 1' {model}"))


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (
            """\
name: inner
merge_method: linear
models:
  - {model: math, parameters: {weight: {suggest: float, low: 0.1, high: 1}}}
  - {model: code, parameters: {weight: 1}}
---
merge_method: linear
models:
  - {model: inner, parameters: {weight: 1}}
  - {model: code, parameters: {weight: 1}}
""",
            "A sweep has no values for stages",
        ),
        (
            """\
merge_method: linear
models:
  - {model: math, parameters: {weight: {suggest: float, low: 0.1, high: 1}}}
  - {model: {suggest: categorical, choices: [code, base]}, parameters: {weight: 1}}
""",
            "The models of a batch are merged of different models",
        ),
    ],
    ids=["stages", "models"],
)
def test_what_no_sweep_makes_is_merged_model_by_model_and_told(
    space: str, why: str, place: Path
) -> None:
    (place / "space.yaml").write_text(space)
    notes = Notes()
    together = swept(place, trials=4, batch=4, sampler="random", seed=1, reporter=notes)
    assert together == [False] * 4
    assert notes.notes.count(TOLD + why) == 1


def test_memory_is_told_before(place: Path) -> None:
    notes = Notes()
    search(place, trials=4, batch=2, jobs=2, reporter=notes)
    told = [note for note in notes.notes if note.startswith("a batch of 2 models")]
    assert len(told) == 1 and "2 evaluations at a time" in told[0] and "available" in told[0]


def test_status_and_the_page_show_it(place: Path) -> None:
    search(place, trials=2, jobs=2)
    shown = resumerge.status(place / "out", state_dir=place / "state")
    [found] = shown["searches"]
    assert (found["batch"], found["jobs"]) == (2, 2)
    words = "in batches of 2, 2 evaluated at a time"
    assert words in shown._repr_html_()
    assert words in " ".join(pretty(shown).split())
    assert "--batch 2 --jobs 2" in " ".join(found["command"])


class Killed(BaseException):
    """The death of the process, as an exception."""


def after(method: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """Return a method that kills the process at the end of its call number `calls`."""
    left = [calls]

    def killed(*given: Any, **named: Any) -> Any:
        result = method(*given, **named)
        left[0] -= 1
        if not left[0]:
            raise Killed
        return result

    return killed


@pytest.mark.parametrize(
    ("owner", "method", "calls"),
    [
        (Session, Session.run, 1),  # the sweep is done, and nothing is taken
        # The second is taken, and its run has no attempt yet.
        (SweptModel, SweptModel.move_into, 2),
        (Session, Session.run, 3),  # two of three are taken
        (TrialModels, TrialModels.merge, 3),  # all are taken, and the sweep is there
        (TrialModels, TrialModels.merge_together, 1),
        (evaluation._Evaluation, evaluation._Evaluation.result, 2),  # one of three has its value
        (TrialModels, TrialModels.keep, 1),
    ],
    ids=["swept", "moved", "taken", "all-taken", "merged", "evaluated", "kept"],
)
def test_a_batch_that_was_killed_is_the_same_batch(
    owner: Any, method: Callable[..., Any], calls: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"trials": 5, "batch": 3, "seed": 7, "keep_best": 2}
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(owner, method.__name__, after(method, calls))
        search(place, "out", **asked)
    found = search(place, "out", **asked)
    assert history(found) == history(search(place, "calm", **asked))
    files, calmly = files_of(place / "out"), files_of(place / "calm")
    assert files.keys() == calmly.keys()
    assert {n for n in files if files[n] != calmly[n]} <= {n for n in files if "README" in n}
    assert len(RunStore(place / "state").runs()) == 4, "two kept models of each search"
