"""The request of a search, and the command that repeats it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.errors import refuse
from resumerge.ledger import now
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.evaluation import MODEL
from resumerge.optimisation.space import Space
from resumerge.optimisation.state import DIRECTIONS, MAXIMIZE
from resumerge.optimisation.study import SAMPLERS, TPE, Settings
from resumerge.options import Options
from resumerge.recipe.sweep import MOST

TRIALS_BY_DEFAULT = 40


@dataclass(frozen=True, kw_only=True)
class Search:
    """The request of a search.

    Args:
        space: the file with the space.
        out: the output's folder.
        evaluate: the command that evaluates a model; it contains `MODEL`.
        trials: the number of trials, including earlier ones.
        sampler: the algorithm that chooses values: one of `SAMPLERS`.
        metrics: the names of the objectives, if the command prints several numbers.
        directions: the direction of each objective, `MAXIMIZE` by default; a single word applies to
            all objectives.
        timeout: the time limit of an evaluation in seconds; None for no limit.
        keep_best: the number of models that are kept.
        batch: the number of trials that are suggested together, and merged in one run; None for the
            number that the search began with, or for a new search the number of `jobs`.
        jobs: the number of evaluations of one batch that run at a time.
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
    batch: int | None = None
    jobs: int = 1

    def check(self) -> None:
        """Refuse values that contradict each other or make no sense.

        Raises:
            InputError: for the first such value.
        """
        if MODEL not in self.evaluate:
            raise refuse(
                "The command does not name the model that it evaluates",
                expected=f"a command with the word {MODEL}",
                found=self.evaluate,
                fix=f"write {MODEL} where the command takes the model's folder",
            )
        for setting_name, words, allowed_words in (
            ("sampler", [self.sampler], SAMPLERS),
            ("direction", self.directions, DIRECTIONS),
        ):
            for word in words:
                if word not in allowed_words:
                    allowed_text = ", ".join(allowed_words[:-1]) + f" or {allowed_words[-1]}"
                    raise refuse(
                        f"There is no {setting_name} {word!r}", expected=allowed_text, found=word
                    )
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
        for setting_name, number, smallest in (
            ("trials", self.trials, 1),
            ("keep-best", self.keep_best, 0),
            ("jobs", self.jobs, 1),
            ("batch", 1 if self.batch is None else self.batch, 1),
        ):
            if number < smallest:
                raise refuse(
                    f"--{setting_name} is too small", expected=f"{smallest} or more", found=number
                )
        if self.timeout is not None and not self.timeout > 0:
            raise refuse("--timeout is no time", expected="more than 0 s", found=self.timeout)

    def settings(self, space: Space, seed: int, began: int | None) -> Settings:
        """Return the settings that decide the suggestions.

        Args:
            space: the space, whose text becomes a part of the settings.
            seed: the seed of the sampler's draws, and of randomized methods.
            began: the batch size that the search began with; None for a new search.

        Raises:
            InputError: the batch is too large, or too small for the jobs.
        """
        batch_size = self.batch or began or self.jobs
        if batch_size > MOST:
            raise refuse(
                "--batch is too large", expected=f"at most {MOST} trials", found=batch_size
            )
        if self.jobs > batch_size:
            is_inherited = began is not None and self.batch is None
            raise refuse(
                "There are more jobs than trials in a batch",
                expected=f"at most {batch_size} jobs"
                + (", the batch that this search began with" if is_inherited else ""),
                found=f"--jobs {self.jobs}",
                fix="evaluations of one batch run at a time: what is suggested next depends on all "
                "of them. Give fewer jobs, or another output for a search with a larger --batch",
            )
        count = max(1, len(self.metrics))
        directions = self.directions if len(self.directions) == count else self.directions * count
        return Settings(
            space.text, self.evaluate, self.sampler, seed, self.metrics, directions, batch_size
        )


def request_document(
    search: Search, settings: Settings, options: Options, points: int | None
) -> dict[str, Any]:
    """Return the study's record of a command: its request, and the words that repeat it.

    Args:
        search: the request; its output is absolute.
        settings: the settings that the search began with.
        options: the options of the merges; those that differ from their default are repeated.
        points: the number of points of a grid; None for other samplers.
    """
    timeout_words = [] if search.timeout is None else ["--timeout", str(search.timeout)]
    options = replace(options, state_dir=RunStore(options.state_dir).folder)
    words = [
        *("search", str(search.space.absolute()), str(search.out), "--evaluate", search.evaluate),
        *("--trials", str(search.trials), "--sampler", search.sampler),
        *(word for name in search.metrics for word in ("--metric", name)),
        *(word for direction in search.directions for word in ("--direction", direction)),
        *timeout_words,
        *("--keep-best", str(search.keep_best)),
        *("--batch", str(settings.batch), "--jobs", str(search.jobs)),
        *(word for option, value in options.given("search") for word in option.words(value)),
        *("--chdir", str(Path.cwd())),
    ]
    return {
        "output": str(search.out),
        "space": str(search.space.absolute()),
        "trials": search.trials if points is None else min(points, search.trials),
        "jobs": search.jobs,
        "created": now(),
        "command": words,
    }
