"""Promise: what is suggested depends on the seed and the history alone, not on the process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import pytest

from resumerge.errors import InputError, Resumable
from resumerge.optimisation.space import Space, parse_space
from resumerge.optimisation.study import (
    MAXIMIZE,
    SAMPLERS,
    Settings,
    check_sampler,
    create_study,
    open_study,
)
from resumerge.storage import Storage

SPACE = """\
merge_method: linear
models:
  - {model: a, parameters: {weight: {suggest: float, low: 0, high: 1, step: 0.1}}}
  - {model: b, parameters: {weight: {suggest: int, low: 1, high: 9}}}
parameters: {normalize: {suggest: categorical, choices: [true, false]}}
"""
TRIALS = 22
"""More than TPE draws freely (10), and than a generation of NSGA-II has (16)."""


class Killed(Exception):
    """The death of the process, as an exception."""


def settings_of(space: Space, sampler: str, seed: int = 3, batch: int = 1) -> Settings:
    several = sampler == "nsga2"
    metrics = ("one", "two") if several else ()
    directions = (MAXIMIZE,) * (1 + several)
    return Settings(space.text, "cmd {model}", sampler, seed, metrics, directions, batch)


def measured(parameters: dict[str, Any], several: bool) -> list[float] | None:
    """Return the values of a made-up model; None if it fails."""
    first, second, normalize = parameters.values()
    if second == 5:
        return None
    values = [-((first - 0.6) ** 2) - abs(second - 4) / 9 + normalize / 10, second - first]
    return values[: 1 + several]


def suggestions(
    folder: Path,
    sampler: str,
    commands: int,
    seed: int = 3,
    kills: Any = None,
    trials: int = TRIALS,
) -> list[dict[str, Any]]:
    """Return what is suggested if several commands, each with a connection, do the trials."""
    space = parse_space(SPACE, "space.yaml")
    settings = settings_of(space, sampler, seed)
    folder.mkdir()
    create_study(folder, settings, {}, Storage())
    for command in range(commands):
        until = trials * (command + 1) // commands
        with open_study(folder, settings, space) as study:
            while len(study.complete) + len(study.failed) < until:
                if kills is not None:
                    with pytest.raises(Killed), kills(len(study.complete) + len(study.failed)):
                        study.ask(trials)
                        raise Killed
                [trial] = study.ask(trials)
                study.tell(trial, measured(trial.params, sampler == "nsga2"))
            found = [trial.params for trial in study.trials]
    assert len(found) == trials
    return found


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """Return a function from a sampler to what one command suggests; each is computed once."""
    folder = tmp_path_factory.mktemp("calm")
    return cache(lambda sampler: suggestions(folder / sampler, sampler, 1))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_command_or_many(
    sampler: str, tmp_path: Path, calm: Callable[[str], list[dict[str, Any]]]
) -> None:
    once = calm(sampler)
    assert suggestions(tmp_path / "many", sampler, 5) == once
    assert len({tuple(each.values()) for each in once}) > TRIALS // 3
    other = suggestions(tmp_path / "other", sampler, 1, seed=4, trials=4)
    assert (other == once[:4]) == (sampler == "grid")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_trial_that_was_interrupted_while_values_were_drawn(
    sampler: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calm: Callable[[str], list[dict[str, Any]]],
) -> None:
    """The interruptions are before, between and after the parameters of a trial, by turns."""
    suggest = optuna.trial.Trial._suggest

    def kills(number: int) -> Any:
        left = [number % 4]

        def killed(self: Any, name: str, distribution: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return suggest(self, name, distribution)

        context = monkeypatch.context()
        patched = context.__enter__()
        patched.setattr(optuna.trial.Trial, "_suggest", killed)

        class Undone:
            def __enter__(self) -> None: ...

            def __exit__(self, *error: object) -> None:
                context.__exit__(None, None, None)

        return Undone()

    assert suggestions(tmp_path / "killed", sampler, 1, kills=kills) == calm(sampler)


def test_a_study_begins_complete_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = parse_space(SPACE, "space.yaml")
    settings = settings_of(space, "tpe")
    with monkeypatch.context() as patched:
        patched.setattr(optuna.Study, "set_user_attr", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            create_study(tmp_path, settings, {}, Storage())
    assert not (tmp_path / "study.db").exists()
    create_study(tmp_path, settings, {}, Storage())
    with open_study(tmp_path, settings, space) as study:
        assert study.trials == []


def test_a_damaged_study_is_told(tmp_path: Path) -> None:
    space = parse_space(SPACE, "space.yaml")
    (tmp_path / "study.db").write_bytes(b"no database at all" * 100)
    with (
        pytest.raises(Resumable, match="cannot be read or written") as stopped,
        open_study(tmp_path, settings_of(space, "tpe"), space),
    ):
        pass
    assert "not a database" in stopped.value.message


def test_other_settings_are_refused(tmp_path: Path) -> None:
    space = parse_space(SPACE, "space.yaml")
    create_study(tmp_path, settings_of(space, "tpe"), {}, Storage())
    with (
        pytest.raises(InputError, match="began with another seed") as refused,
        open_study(tmp_path, settings_of(space, "tpe", 4), space),
    ):
        pass
    [problem] = refused.value.problems
    assert (problem.expected, problem.found) == ("3", "4")
    other = parse_space(SPACE.replace("high: 9", "high: 8"), "space.yaml")
    with (
        pytest.raises(InputError, match="began with another space"),
        open_study(tmp_path, settings_of(other, "tpe"), other),
    ):
        pass


def test_a_grid_needs_steps_and_cma_es_numbers() -> None:
    endless = parse_space(SPACE.replace(", step: 0.1", ""), "space.yaml")
    with pytest.raises(InputError, match="A grid has no end") as refused:
        check_sampler("grid", 1, endless)
    assert refused.value.problems[0].line == 3
    few = parse_space(SPACE.replace("{suggest: int, low: 1, high: 9}", "1"), "space.yaml")
    with pytest.raises(InputError, match="CMA-ES cannot search this") as refused:
        check_sampler("cmaes", 1, few)
    assert "--sampler tpe" in refused.value.problems[0].fix
    with pytest.raises(InputError, match="2 objectives"):
        check_sampler("cmaes", 2, parse_space(SPACE, "space.yaml"))


BATCH = 5


def batches(
    folder: Path, sampler: str, trials: int, backwards: bool, kill_at: int = 0
) -> list[Any]:
    """Return the trials of batches whose results are reported in one order or the other.

    Args:
        folder: a new folder for the study.
        sampler: the sampler.
        trials: the number of trials.
        backwards: whether the results of a batch are reported in reverse order.
        kill_at: the number of suggestions and results after which another connection continues.
    """
    space = parse_space(SPACE, "space.yaml")
    settings = settings_of(space, sampler, batch=BATCH)
    folder.mkdir()
    create_study(folder, settings, {}, Storage())
    while True:
        with (
            suppress(Killed),
            pytest.MonkeyPatch.context() as patched,
            open_study(folder, settings, space) as study,
        ):
            left = [kill_at]

            def dying(method: Any, left: list[int] = left) -> Any:
                def call(*given: Any, **named: Any) -> Any:
                    left[0] -= 1
                    if not left[0]:
                        raise Killed
                    return method(*given, **named)

                return call

            patched.setattr(optuna.trial.Trial, "_suggest", dying(optuna.trial.Trial._suggest))
            patched.setattr(optuna.Study, "tell", dying(optuna.Study.tell))
            while (done := len(study.complete) + len(study.failed)) < trials:
                batch = study.ask(trials - done)
                for trial in reversed(batch) if backwards else batch:
                    study.tell(trial, measured(trial.params, sampler == "nsga2"))
            return [(trial.number, trial.params, trial.values) for trial in study.trials]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_is_the_same_however_it_is_told_and_interrupted(
    sampler: str, tmp_path: Path
) -> None:
    calm = batches(tmp_path / "calm", sampler, 22, backwards=False)
    assert len(calm) == 22
    assert batches(tmp_path / "backwards", sampler, 22, backwards=True) == calm
    # 3 suggestions for each of 5 trials, and 5 results: every point is met
    assert batches(tmp_path / "killed", sampler, 22, backwards=True, kill_at=17) == calm


def test_a_batch_learns_from_those_before_it_and_of_tpe_from_each_other(tmp_path: Path) -> None:
    """A trial is suggested with the values of earlier batches, but none of its own batch."""
    found = [
        [each[1] for each in batches(tmp_path / sampler, sampler, 10, backwards=False)]
        for sampler in ("random", "tpe")
    ]
    assert found[0] == found[1], "the first ten are drawn freely"
    ones = suggestions(tmp_path / "ones", "tpe", 1, trials=20)
    fives = [each[1] for each in batches(tmp_path / "fives", "tpe", 20, backwards=False)]
    assert fives[:10] == ones[:10] and fives[10:] != ones[10:]
