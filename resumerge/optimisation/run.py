"""A search from the command to its document: one trial after the other."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.engine.reporter import ProgressUpdate, Reporter, Result
from resumerge.engine.resources.lock import run_lock
from resumerge.engine.resources.resource_errors import resumable_disk_errors
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Problem, refuse
from resumerge.ledger import now
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.document import CHOOSING, ERROR, METRICS, SECONDS, document_of, row_of
from resumerge.optimisation.evaluation import (
    MODEL,
    STDERR,
    TrialFailed,
    evaluate,
    values_of,
)
from resumerge.optimisation.models import TrialModels
from resumerge.optimisation.space import INSIDE, Space, read_space
from resumerge.optimisation.state import DIRECTIONS, MAXIMIZE, STUDY_FILE, TRIALS, folder_of
from resumerge.optimisation.study import (
    GRID,
    SAMPLERS,
    TPE,
    Settings,
    Study,
    check_sampler,
    create_study,
    has_begun_otherwise,
    open_study,
)
from resumerge.options import Options
from resumerge.options.options import SEED
from resumerge.planning.estimates.estimate import Prediction
from resumerge.planning.plan import Plan
from resumerge.recipe import parse_recipe
from resumerge.sources.remote.prefetch import DownloadProgress
from resumerge.storage import Storage

if TYPE_CHECKING:
    import optuna

TRIALS_BY_DEFAULT = 40
HOPELESS = 5
"""So many failed trials from the first on end a search: the command is wrong, not the models."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search is asked for.

    Args:
        space: the file with the space.
        out: the output's folder.
        evaluate: the command that evaluates a model; it has `MODEL` in it.
        trials: the number of trials, with those that were tried before.
        sampler: one of `SAMPLERS`.
        metrics: the names of the objectives, if the command prints several numbers.
        directions: what is done with each: `MAXIMIZE` by default; one word may stand for all.
        timeout: seconds that an evaluation may take; None for no limit.
        keep_best: the number of models that stay.
    """

    space: Path
    out: Path
    evaluate: str
    trials: int = TRIALS_BY_DEFAULT
    sampler: str = TPE
    metrics: tuple[str, ...] = ()
    directions: tuple[str, ...] = (MAXIMIZE,)
    timeout: float | None = None
    keep_best: int = 1

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InputError: the first such thing.
        """
        if MODEL not in self.evaluate:
            raise refuse(
                "The command does not name the model that it evaluates",
                expected=f"a command with the word {MODEL}",
                found=self.evaluate,
                fix=f"write {MODEL} where the command takes the model's folder",
            )
        for what, given, known in (
            ("sampler", [self.sampler], SAMPLERS),
            ("direction", self.directions, DIRECTIONS),
        ):
            for word in given:
                if word not in known:
                    one_of = ", ".join(known[:-1]) + f" or {known[-1]}"
                    raise refuse(f"There is no {what} {word!r}", expected=one_of, found=word)
        if len(set(self.metrics)) < len(self.metrics) or len(self.directions) not in (
            1,
            max(1, len(self.metrics)),
        ):
            raise refuse(
                "Objectives and directions do not fit each other",
                expected="different metrics, and one direction, or one for each metric",
                found=f"metrics {', '.join(self.metrics) or '(none named)'}; directions "
                + ", ".join(self.directions),
                fix="write --metric and --direction in the same order, as often as there are "
                "objectives",
            )
        for what, number, least in (("trials", self.trials, 1), ("keep-best", self.keep_best, 0)):
            if number < least:
                raise refuse(f"--{what} is too small", expected=f"{least} or more", found=number)
        if self.timeout is not None and not self.timeout > 0:
            raise refuse("--timeout is no time", expected="more than 0 s", found=self.timeout)

    def settings(self, space: Space, seed: int) -> Settings:
        """Return what decides what is suggested."""
        count = max(1, len(self.metrics))
        directions = self.directions if len(self.directions) == count else self.directions * count
        return Settings(space.text, self.evaluate, self.sampler, seed, self.metrics, directions)


def search_models(
    search: Search,
    options: Options,
    reporter: Reporter,
    told: Callable[[dict[str, Any]], None] = lambda row: None,
    stop: StopRequest | None = None,
    storage: Storage | None = None,
) -> dict[str, Any]:
    """Search, and return the document of ``search --json``.

    A search that was stopped goes on if it is asked for again: the interrupted trial first. With
    the same seed, what is suggested is the same as without the interruption.

    Args:
        search: what is asked for.
        options: of the merges.
        reporter: is told how the merges proceed.
        told: is told the row of each trial that is finished, as the document has it.
        stop: the request to stop that signals make.
        storage: the operations on files.

    Raises:
        InputError: the space, the command or an option is invalid; or no model could be evaluated.
        Interrupted: a signal asked to stop; the trials that are finished are kept.
        Resumable: a model, the disk or the state folder cannot be used now.
    """
    search.check()
    search = replace(search, out=Path(os.path.realpath(search.out)))
    space = read_space(search.space)
    settings = search.settings(space, SEED if options.seed is None else options.seed)
    check_sampler(search.sampler, len(settings.directions), space)
    storage, stop = storage or Storage(), stop or StopRequest()
    folder = folder_of(search.out, RunStore(options.state_dir).folder)
    points = len(space.grid()) if search.sampler == GRID else None
    asked = _asked(search, options, points)
    with stop.listening(), resumable_disk_errors():
        models = TrialModels(search.out, options, storage, stop)
        if not (folder / STUDY_FILE).is_file():
            _check_new(search, folder)
            _check_models(space, models)
        storage.make_folder(folder)
        with run_lock(folder, str(search.out)):
            if has_begun_otherwise(folder, settings):
                models.delete(0)
                storage.remove(folder / STUDY_FILE)
            with stop.deferred():
                if not (folder / STUDY_FILE).is_file():
                    create_study(folder, settings, asked, storage)
            with open_study(folder, settings, space) as study:
                with stop.deferred():
                    study.note_asked(asked)
                work = _Work(search, settings, space, study, models, reporter, told, stop)
                work.do()
                return document_of(search.out, settings, study, space, models)


class _Work:
    """The trials of one command."""

    def __init__(
        self,
        search: Search,
        settings: Settings,
        space: Space,
        study: Study,
        models: TrialModels,
        reporter: Reporter,
        told: Callable[[dict[str, Any]], None],
        stop: StopRequest,
    ) -> None:
        self._search, self._settings, self._space = search, settings, space
        self._study, self._models, self._told, self._stop = study, models, told, stop
        self._reporter = _TrialReporter(reporter)

    def do(self) -> None:
        """Do trials until there are enough; then delete what is not kept."""
        study, finished = self._study, 0
        while len(study.complete) + len(study.failed) < self._search.trials:
            if study.is_exhausted:
                self._reporter.note("The grid is complete: every combination was tried")
                break
            self._trial()
            self._tidy()
            finished += 1
            if not study.complete and finished >= HOPELESS:
                raise self._hopeless()
        self._tidy()

    def _trial(self) -> None:
        self._reporter.doing(CHOOSING)
        with self._stop.deferred():
            trial = self._study.ask()
        self._stop.check()
        number = trial.number
        started = time.monotonic()
        merged: float | None = None
        values: list[float] | None = None
        error = ""
        self._reporter.trial = number
        try:
            self._merge(trial)
            merged = time.monotonic()
            self._reporter.doing(f"trial {number}: evaluating")
            metrics = self._evaluate(trial)
            values = values_of(metrics, self._metrics(metrics))
        except TrialFailed as failed:
            error = str(failed)
        ended = time.monotonic()
        with self._stop.deferred():
            seconds = {
                "merge": round((merged or ended) - started, 3),
                "evaluation": round(ended - (merged or ended), 3),
            }
            trial.set_user_attr(SECONDS, seconds)
            if error:
                trial.set_user_attr(ERROR, error)
            self._study.tell(trial, values)
        frozen = self._study.trials[number]
        self._told(row_of(frozen, self._settings, self._models, kept=False))
        self._stop.check()

    def _merge(self, trial: optuna.Trial) -> None:
        """Merge the model of a trial.

        Raises:
            TrialFailed: these values make no model, though others of the space do.
            InputError: no values of the space make a model now.
        """
        recipe = self._space.recipe(trial.params)
        try:
            self._models.merge(trial.number, recipe, self._reporter)
        except InputError:
            _check_models(self._space, self._models)
            try:
                self._models.plan(parse_recipe(recipe, self._space.file))
            except InputError as error:
                what = error.problems[0].what
                raise TrialFailed(f"these values make no model: {what}") from None
            raise

    def _evaluate(self, trial: optuna.Trial) -> dict[str, float]:
        models, number = self._models, trial.number

        metrics = evaluate(
            self._search.evaluate,
            models.model(number),
            models.folder(number),
            self._search.timeout,
            self._stop,
            self._reporter.heartbeat,
        )
        with self._stop.deferred():
            finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
            trial.set_user_attr(METRICS, finite)
        return metrics

    def _metrics(self, metrics: dict[str, float]) -> tuple[str, ...]:
        """Return the names of the objectives.

        Raises:
            InputError: the command prints several numbers, and none is named.
        """
        if self._settings.metrics:
            return self._settings.metrics
        if len(metrics) == 1:
            return tuple(metrics)
        raise refuse(
            "The command prints several metrics, and none is named as the objective",
            expected="--metric NAME",
            found=", ".join(metrics),
            fix=f"type the command again with --metric {next(iter(metrics))}, or with another; "
            "several make a search with several objectives",
        )

    def _tidy(self) -> None:
        """Keep the best models, and name the best."""
        ranked = self._study.ranked()
        kept = [trial.number for trial in ranked[: self._search.keep_best]]
        self._models.keep(kept, len(self._study.trials))
        if ranked and len(self._settings.directions) == 1:
            best = ranked[0]
            recipe = self._space.recipe(best.params)
            self._models.name_best(best.number, recipe, kept=best.number in kept)

    def _hopeless(self) -> InputError:
        failed = self._study.failed
        last = failed[-1]
        return refuse(
            f"No model could be evaluated: all of the first {len(failed)} trials failed",
            where=self._models.folder(last.number) / STDERR,
            expected="a command that exits with 0, and prints a number or a JSON object last",
            found=last.user_attrs.get(ERROR, ""),
            fix="try the command on a model by hand; a search by another command needs another "
            "output. The same command again does the next trials",
        )


class _TrialReporter(Reporter):
    """Tells of the merges of trials what matters in a search: phases, progress, each note once."""

    trial = 0

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._noted: set[str] = set()

    def doing(self, what: str) -> None:
        own = what.startswith("trial ") or what == CHOOSING
        self._reporter.doing(what if own else f"trial {self.trial}: {what}")

    def planned(self, run: str, plan: Plan, predicted: Prediction, *, resumed: bool) -> None:
        for text in (*plan.notes, *predicted.estimate.notes):
            self.note(text)

    def heartbeat(self) -> None:
        self._reporter.heartbeat()

    def reading(self, done: int, total: int) -> None:
        self._reporter.reading(done, total)

    def fetching(self, fetched: DownloadProgress) -> None:
        self._reporter.fetching(fetched)

    def progressed(self, progressed: ProgressUpdate) -> None:
        self._reporter.progressed(progressed)

    def waiting(self, text: str) -> None:
        self._reporter.waiting(text)

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._reporter.note(text)

    def done(self, result: Result) -> None:
        for text in result.notes:
            self.note(text)


def _check_new(search: Search, folder: Path) -> None:
    """Refuse a new search in an output that has trials already; nothing is written."""
    trials = search.out / TRIALS
    if trials.exists():
        raise refuse(
            "The output has trials already, and their study is not in this state folder",
            where=str(trials),
            expected=f"a new output, or {STUDY_FILE} in {folder}",
            found=f"a folder {TRIALS}",
            fix="name another output, or with --state-dir the state folder that the search began "
            "with",
        )


def _check_models(space: Space, models: TrialModels) -> None:
    """Plan recipes of the space until one can be merged: single ones may make no model.

    Raises:
        InputError: the models cannot be merged so; at lines of the space.
    """
    problems: list[Problem] = []
    for share in (INSIDE, 0, 1):
        try:
            models.plan(parse_recipe(space.recipe(space.between(share)), space.file))
            return
        except InputError as error:
            problems = problems or [space.placed(each) for each in error.problems]
    raise InputError(problems)


def _asked(search: Search, options: Options, points: int | None) -> dict[str, Any]:
    """Return what the study keeps of a command: what it was asked for, and how it is repeated.

    Args:
        search: what is asked for; its output is absolute.
        options: of the merges.
        points: of a grid; None for other samplers.
    """
    seconds = [] if search.timeout is None else ["--timeout", str(search.timeout)]
    options = replace(options, state_dir=RunStore(options.state_dir).folder)
    words = [
        *("search", str(search.space.absolute()), str(search.out), "--evaluate", search.evaluate),
        *("--trials", str(search.trials), "--sampler", search.sampler),
        *(word for name in search.metrics for word in ("--metric", name)),
        *(word for way in search.directions for word in ("--direction", way)),
        *seconds,
        *("--keep-best", str(search.keep_best)),
        *(word for option, value in options.given("search") for word in option.words(value)),
        *("--chdir", str(Path.cwd())),
    ]
    return {
        "output": str(search.out),
        "space": str(search.space.absolute()),
        "trials": search.trials if points is None else min(points, search.trials),
        "created": now(),
        "command": words,
    }
