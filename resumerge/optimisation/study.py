"""The study: suggestions and measured values, in Optuna's SQLite storage in the state folder.

A sampler draws random numbers. If it lived as long as its process, it would suggest other values
after an interruption. So each suggestion has its own sampler, seeded by the search's seed and the
numbers of the trial and the parameter: suggestions depend on the history alone.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.errors import Reason, Resumable, refuse
from resumerge.optimisation.ranges import CATEGORICAL
from resumerge.optimisation.space import Space
from resumerge.optimisation.state import ASKED, BATCH, MAXIMIZE, SETTINGS, STUDY_FILE
from resumerge.storage import Storage

if TYPE_CHECKING:
    import optuna

EXTRA = "pip install 'resumerge[search]'"

TPE, RANDOM, GRID, CMAES, NSGA2 = "tpe", "random", "grid", "cmaes", "nsga2"
SAMPLERS = (TPE, RANDOM, GRID, CMAES, NSGA2)

_NAME = "search"

POPULATION = 16
"""The models of a generation of NSGA-II. Optuna's default, 50, exceeds the trials of most
searches."""


@dataclass(frozen=True)
class Settings:
    """The settings that decide the suggestions: they stay the same during a whole search.

    Args:
        space: the space as YAML without comments (`Space.text`).
        evaluate: the command that evaluates a model, with `MODEL` in place of the model's folder.
        sampler: the algorithm that chooses values: one of `SAMPLERS`.
        seed: the seed of the sampler's draws, and of randomized methods.
        metrics: the names of the objectives; empty for a command that prints one metric of any
            name.
        directions: `MAXIMIZE` or `MINIMIZE` for each objective.
        batch: the number of trials that are suggested together.
    """

    space: str
    evaluate: str
    sampler: str
    seed: int
    metrics: tuple[str, ...]
    directions: tuple[str, ...]
    batch: int = 1

    def as_json(self) -> dict[str, Any]:
        """Return the settings as the study stores them."""
        values = asdict(self)
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Settings:
        """Return the settings from their JSON in a study."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in kept.items()
        }
        return cls(**values)


class Study:
    """A study that suggests trials batch by batch, and stores the values of finished trials.

    Args:
        study: the study of Optuna that stores the trials; it is open as long as this object is
            used.
        settings: the settings that the study began with.
        space: the space that the study began with, whose ranges are suggested.
    """

    def __init__(self, study: optuna.Study, settings: Settings, space: Space) -> None:
        self._study, self._settings, self._space = study, settings, space
        self._distributions = {
            name: suggestion.distribution() for name, suggestion in space.suggestions.items()
        }
        self._grid = space.grid() if settings.sampler == GRID else None

    def store_request(self, asked: Mapping[str, Any]) -> None:
        """Store the latest request; the study was created with the first one."""
        with _quiet():
            began = self._study.user_attrs[ASKED]
            self._study.set_user_attr(ASKED, {**asked, "created": began["created"]})

    @property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """All trials, by number."""
        trials: list[optuna.trial.FrozenTrial] = self._study.get_trials(deepcopy=False)
        return trials

    @property
    def complete(self) -> list[optuna.trial.FrozenTrial]:
        """The trials with values."""
        return [trial for trial in self.trials if trial.state.name == "COMPLETE"]

    @property
    def failed(self) -> list[optuna.trial.FrozenTrial]:
        """The trials without values, because their merge or evaluation failed."""
        return [trial for trial in self.trials if trial.state.name == "FAIL"]

    @property
    def is_exhausted(self) -> bool:
        """Whether every point of a grid was tried."""
        return self._trials_left <= 0

    def ranked(self) -> list[optuna.trial.FrozenTrial]:
        """Return the trials with values, the best first; for several objectives, the Pareto front.

        Of two equal trials the earlier comes first; a front is ordered by the first objective.
        """
        sign = -1 if self._settings.directions[0] == MAXIMIZE else 1
        has_several = len(self._settings.directions) > 1
        trials = self._study.best_trials if has_several and self.complete else self.complete
        return sorted(trials, key=lambda trial: (sign * trial.values[0], trial.number))

    def importances(self) -> dict[str, float]:
        """Return the importance of each parameter for the best results; empty if it is unknown.

        Importances need one objective and ten trials or more (PED-ANOVA, arXiv 2304.10255).
        """
        if len(self._settings.directions) > 1 or len(self.complete) < 10:
            return {}
        import optuna

        with _quiet(), suppress(ValueError, RuntimeError):
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            shares = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
            return dict(shares)
        return {}

    def ask(self, most: int) -> list[optuna.Trial]:
        """Return the trials of the interrupted batch, or of a new batch.

        All trials of a batch are suggested before one of them has values. Suggestions depend on the
        trials before the batch and, with TPE, on the other suggestions of the batch.

        Args:
            most: the most trials of a new batch.

        Returns:
            the unfinished trials, in the order of their numbers, each with suggestions for all
            parameters.
        """
        latest_batch = self._study.user_attrs.get(BATCH, [0, 0])
        if sum(latest_batch) == self._finished:
            latest_batch = [self._finished, min(most, self._settings.batch, self._trials_left)]
            with _quiet():
                self._study.set_user_attr(BATCH, latest_batch)
        numbers = range(latest_batch[0], sum(latest_batch))
        unfinished_numbers = [number for number in numbers if not self._is_finished(number)]
        return [self._suggest(number) for number in unfinished_numbers]

    @property
    def _finished(self) -> int:
        return len(self.complete) + len(self.failed)

    @property
    def _trials_left(self) -> int:
        """The most trials of a new batch; for a grid, its remaining points."""
        return self._settings.batch if self._grid is None else len(self._grid) - self._finished

    def _is_finished(self, number: int) -> bool:
        trials = self.trials
        return number < len(trials) and trials[number].state.is_finished()

    def _suggest(self, number: int) -> optuna.Trial:
        """Return the trial with a number, with suggestions for all parameters."""
        import optuna

        trials = self.trials
        with _quiet():
            self._study.sampler = self._sampler(number, 0)
            if number < len(trials) and trials[number].state.name == "RUNNING":
                trial = optuna.trial.Trial(self._study, trials[number]._trial_id)
                if len(trial.params) == len(self._distributions):
                    return trial  # sampled before another trial of its batch had values
            else:
                if self._grid is not None and number == len(trials):
                    self._study.enqueue_trial(self._grid[number])
                trial = self._study.ask()
            trial.relative_params  # noqa: B018  (sampled now, by the trial's own sampler)
            for index, (name, distribution) in enumerate(self._distributions.items(), 1):
                self._study.sampler = self._sampler(number, index)
                trial._suggest(name, distribution)
        return trial

    def tell(self, trial: optuna.Trial, values: Sequence[float] | None) -> None:
        """Record the values of a trial; None for a failed trial."""
        import optuna

        self._study.sampler = self._sampler(trial.number, len(self._distributions) + 1)
        with _quiet():
            if values is None:
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, list(values))

    def _sampler(self, number: int, index: int) -> optuna.samplers.BaseSampler:
        """Return the sampler for one parameter of one trial; index 0 is for all together."""
        from optuna import samplers

        words = f"{self._settings.seed}/{number}/{index}".encode()
        seed = int.from_bytes(hashlib.sha256(words).digest()[:4], "big")
        kind = self._settings.sampler
        if kind == TPE:
            return samplers.TPESampler(seed=seed, constant_liar=self._settings.batch > 1)
        if kind == CMAES:
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        if kind == NSGA2:
            return samplers.NSGAIISampler(seed=seed, population_size=POPULATION)
        return samplers.RandomSampler(seed=seed)


def check_sampler(sampler: str, objectives: int, space: Space) -> None:
    """Refuse a sampler that is not installed, or cannot search a space.

    Raises:
        InputError: Optuna or the sampler's package is missing, or the space does not fit.
    """
    _import("optuna", "A search needs Optuna, which is not installed")
    if sampler == GRID:
        space.grid()
    if sampler != CMAES:
        return
    _import("cmaes", "CMA-ES needs the package cmaes, which is not installed")
    number_count = sum(suggestion.kind != CATEGORICAL for suggestion in space.suggestions.values())
    if objectives > 1 or number_count < 2:
        raise refuse(
            "CMA-ES cannot search this",
            where=space.file,
            expected="one objective, and two numbers or more that are suggested",
            found=f"{objectives} objectives" if objectives > 1 else f"{number_count} such numbers",
            fix=f"take --sampler {NSGA2 if objectives > 1 else TPE}",
        )


@contextmanager
def open_study(folder: Path, settings: Settings, space: Space) -> Iterator[Study]:
    """Yield the study in a folder.

    Raises:
        InputError: the study began with other settings.
    """
    with _connected(folder / STUDY_FILE) as study:
        first_settings = study.user_attrs[SETTINGS]
        _check_same(first_settings, settings.as_json(), folder)
        yield Study(study, settings, space)


def create_study(
    folder: Path, settings: Settings, asked: Mapping[str, Any], storage: Storage
) -> None:
    """Write an empty study to a folder. The file appears complete, or not at all."""
    import optuna

    path = folder / STUDY_FILE
    partial_path = path.with_name(path.name + ".partial")
    storage.remove(partial_path)
    with _connection(partial_path) as connection, _quiet():
        directions = list(settings.directions)
        study = optuna.create_study(storage=connection, study_name=_NAME, directions=directions)
        study.set_user_attr(SETTINGS, settings.as_json())
        study.set_user_attr(ASKED, dict(asked))
    storage.sync_file(partial_path)
    storage.rename(partial_path, path)


def has_begun_otherwise(folder: Path, settings: Settings) -> bool:
    """Return whether the study in a folder has other settings, and no trial with values."""
    if not (folder / STUDY_FILE).is_file():
        return False
    with _connected(folder / STUDY_FILE) as study:
        is_empty = all(trial.state.name != "COMPLETE" for trial in study.get_trials(deepcopy=False))
        return is_empty and study.user_attrs[SETTINGS] != settings.as_json()


def _check_same(began: Mapping[str, Any], given: Mapping[str, Any], folder: Path) -> None:
    for key, value in given.items():
        if began.get(key) != value:
            expected_text = (
                "the space that it began with" if key == "space" else json.dumps(began.get(key))
            )
            found_text = "another space" if key == "space" else json.dumps(value)
            raise refuse(
                f"This search began with another {key.rstrip('s')}",
                where=str(folder / STUDY_FILE),
                expected=expected_text,
                found=found_text,
                fix="give what it began with to go on, or name another output for a new search",
            )


@contextmanager
def _connected(path: Path) -> Iterator[optuna.Study]:
    import optuna

    with _connection(path) as connection, _quiet():
        yield optuna.load_study(study_name=_NAME, storage=connection)


@contextmanager
def _connection(path: Path) -> Iterator[optuna.storages.RDBStorage]:
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with _quiet():
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise Resumable(
            Reason.IO,
            f"The study of the search, {path}, cannot be read or written: "
            f"{str(error.__cause__ or error).splitlines()[0]}. Is its disk full? If the file is "
            "damaged, begin another search with another output: recipes and models of the trials "
            "are still there.",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Optuna's output to the terminal inside the context."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _import(module: str, what: str) -> None:
    from importlib import import_module

    try:
        import_module(module)
    except ImportError as error:
        raise refuse(what, found=str(error), fix=EXTRA) from None
