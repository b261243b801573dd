"""A search from the command to its document: batch after batch, and each of its trials."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.lock import run_lock
from resumerge.engine.resources.resource_errors import resumable_disk_errors
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, refuse
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.batches import BatchMerges, check_models
from resumerge.optimisation.document import CHOOSING, ERROR, METRICS, SECONDS, document_of, row_of
from resumerge.optimisation.evaluation import (
    STDERR,
    Candidate,
    Evaluated,
    TrialFailed,
    evaluate,
    values_of,
)
from resumerge.optimisation.models import TrialModels
from resumerge.optimisation.progress import TrialReporter
from resumerge.optimisation.request import Search, request_document
from resumerge.optimisation.space import Space, read_space
from resumerge.optimisation.state import SETTINGS, STUDY_FILE, TRIALS, attributes_of, search_folder
from resumerge.optimisation.study import (
    GRID,
    Settings,
    Study,
    check_sampler,
    create_study,
    has_begun_otherwise,
    open_study,
)
from resumerge.options import Options
from resumerge.options.fields import SEED
from resumerge.storage import Storage

if TYPE_CHECKING:
    import optuna

HOPELESS = 5
"""The number of a command's finished trials after which it stops, if no trial has values."""


def run_search(
    search: Search,
    options: Options,
    reporter: Reporter,
    told: Callable[[dict[str, Any]], None] = lambda row: None,
    stop: StopRequest | None = None,
    storage: Storage | None = None,
) -> dict[str, Any]:
    """Search, and return the document of ``search --json``.

    The same request continues a stopped search, with the interrupted batch first. With the same
    seed, suggestions are the same as without the interruption.

    Args:
        search: the request, which is checked first; its output may be relative.
        options: the options of each merge; the study lies in their state folder, too.
        reporter: receives the progress of the merges.
        told: called with the document's row of each finished trial.
        stop: the request to stop that signals make.
        storage: the operations on files.

    Raises:
        InputError: the space, the command or an option is invalid; or no model could be evaluated.
        Interrupted: a signal asked to stop; finished trials are kept.
        Resumable: a model, the disk or the state folder cannot be used now.
    """
    search.check()
    search = replace(search, out=Path(os.path.realpath(search.out)))
    space = read_space(search.space)
    storage, stop = storage or Storage(), stop or StopRequest()
    folder = search_folder(search.out, RunStore(options.state_dir).folder)
    has_begun = (folder / STUDY_FILE).is_file()
    first_batch_size = attributes_of(folder)[SETTINGS]["batch"] if has_begun else None
    settings = search.settings(
        space, SEED if options.seed is None else options.seed, first_batch_size
    )
    check_sampler(search.sampler, len(settings.directions), space)
    point_count = len(space.grid()) if search.sampler == GRID else None
    request = request_document(search, settings, options, point_count)
    with stop.listening(), resumable_disk_errors():
        models = TrialModels(search.out, options, storage, stop)
        if not (folder / STUDY_FILE).is_file():
            _check_new(search, folder)
            check_models(space, models)
        storage.make_folder(folder)
        with run_lock(folder, str(search.out)):
            if has_begun_otherwise(folder, settings):
                models.delete_all()
                storage.remove(folder / STUDY_FILE)
            with stop.deferred():
                if not (folder / STUDY_FILE).is_file():
                    create_study(folder, settings, request, storage)
            with open_study(folder, settings, space) as study:
                with stop.deferred():
                    study.store_request(request)
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
        self._reporter = TrialReporter(reporter, search.jobs)
        self._merges = BatchMerges(space, models, self._reporter)

    def do(self) -> None:
        """Do batches up to the requested number of trials; delete the models that are not kept.

        Raises:
            InputError: no trial has a value.
        """
        study, finished_count = self._study, 0
        while (missing_trials := self._search.trials - len(study.complete) - len(study.failed)) > 0:
            if study.is_exhausted:
                self._reporter.note("The grid is complete: every combination was tried")
                break
            finished_count = self._do_batch(missing_trials, finished_count)
            self._tidy()
        self._tidy()
        if study.failed and not study.complete:
            raise self._hopeless()

    def _do_batch(self, most: int, finished: int) -> int:
        """Merge and evaluate the models of a batch.

        Args:
            most: the most trials of a new batch.
            finished: the number of trials that this command has finished so far.

        Returns:
            the number of trials that this command has finished after the batch.
        """
        self._reporter.doing(CHOOSING)
        with self._stop.deferred():
            batch = {trial.number: trial for trial in self._study.ask(most)}
        self._stop.check()
        self._reporter.trials = [*batch]
        merge_start = time.monotonic()
        failure_by_number = self._merges.merge(
            {number: trial.params for number, trial in batch.items()}
        )
        seconds_each = (time.monotonic() - merge_start) / len(batch)
        candidates = [
            self._candidate(number) for number in batch if number not in failure_by_number
        ]
        results = [Evaluated(number, {}, error, 0.0) for number, error in failure_by_number.items()]
        if candidates:
            self._reporter.evaluating()
        with closing(self._evaluations(results, candidates)) as evaluations:
            for evaluated in evaluations:
                self._finish(batch[evaluated.number], evaluated, seconds_each)
                finished += 1
                if not self._study.complete and finished >= HOPELESS:
                    self._tidy()
                    raise self._hopeless()
        return finished

    def _evaluations(
        self, results: Sequence[Evaluated], candidates: Sequence[Candidate]
    ) -> Generator[Evaluated]:
        """Yield the given results, then the results of the candidates' evaluations."""
        yield from results
        search = self._search
        yield from evaluate(
            search.evaluate,
            candidates,
            search.timeout,
            search.jobs,
            self._stop,
            self._reporter.heartbeat,
        )

    def _candidate(self, number: int) -> Candidate:
        return Candidate(number, self._models.model(number), self._models.folder(number))

    def _finish(self, trial: optuna.Trial, evaluated: Evaluated, merging: float) -> None:
        """Record the result of a trial in the study, in any order within its batch.

        The next suggestion follows only after all results of the batch. They then count in the
        order of the trials' numbers.
        """
        values, error, metrics = None, evaluated.error, evaluated.metrics
        if not error:
            try:
                values = values_of(metrics, self._metrics(metrics))
            except TrialFailed as failure:
                error = str(failure)
        with self._stop.deferred():
            finite_metrics = {
                name: value for name, value in metrics.items() if math.isfinite(value)
            }
            seconds = {"merge": round(merging, 3), "evaluation": round(evaluated.seconds, 3)}
            trial.set_user_attr(METRICS, finite_metrics)
            trial.set_user_attr(SECONDS, seconds)
            if error:
                trial.set_user_attr(ERROR, error)
            self._study.tell(trial, values)
        finished_trial = self._study.trials[trial.number]
        self._told(row_of(finished_trial, self._settings, self._models, kept=False))
        self._stop.check()

    def _metrics(self, metrics: dict[str, float]) -> tuple[str, ...]:
        """Return the names of the objectives.

        Raises:
            InputError: the command prints several numbers, and the user named no objective.
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
        """Delete all models except the best ones and those not evaluated yet; link the best."""
        ranked_trials = self._study.ranked()
        kept_numbers = [trial.number for trial in ranked_trials[: self._search.keep_best]]
        waiting_numbers = [
            trial.number for trial in self._study.trials if not trial.state.is_finished()
        ]
        self._models.keep([*kept_numbers, *waiting_numbers], len(self._study.trials))
        if ranked_trials and len(self._settings.directions) == 1:
            best_trial = ranked_trials[0]
            recipe = self._space.recipe(best_trial.params)
            self._models.name_best(
                best_trial.number, recipe, kept=best_trial.number in kept_numbers
            )

    def _hopeless(self) -> InputError:
        failed_trials = self._study.failed
        last_trial = failed_trials[-1]
        return refuse(
            f"No model could be evaluated: all of the first {len(failed_trials)} trials failed",
            where=self._models.folder(last_trial.number) / STDERR,
            expected="a command that exits with 0, and prints a number or a JSON object last",
            found=last_trial.user_attrs.get(ERROR, ""),
            fix="try the command on a model by hand, and correct it: with another command the "
            "search begins anew. The same command again does the next of --trials",
        )


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
