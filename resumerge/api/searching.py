"""The function `search`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from resumerge.api.calls import speaks_python, text_of, texts_of
from resumerge.engine.reporter import Reporter
from resumerge.local_path import OUTPUT, local_path
from resumerge.optimisation.request import TRIALS_BY_DEFAULT, Search
from resumerge.optimisation.run import run_search
from resumerge.optimisation.state import MAXIMIZE
from resumerge.optimisation.study import TPE
from resumerge.options import Options
from resumerge.options.call_options import SearchOptions
from resumerge.options.signature import with_options
from resumerge.options.types import StrPath
from resumerge.ui.notebook.in_process import keepalive_in_notebook
from resumerge.ui.notebook.results import DisplayedSearch


@with_options("search")
@speaks_python
def search(
    space: StrPath,
    out: StrPath,
    evaluate: str,
    *,
    trials: int = TRIALS_BY_DEFAULT,
    sampler: str = TPE,
    metrics: str | Sequence[str] = (),
    directions: str | Sequence[str] = (MAXIMIZE,),
    timeout: float | None = None,
    keep_best: int = 1,
    batch: int | None = None,
    jobs: int = 1,
    progress: str = "auto",
    **options: Unpack[SearchOptions],
) -> DisplayedSearch:
    """Search for the values of a recipe whose models score best in an evaluation.

    If a search was stopped, the same call continues it.

    Args:
        space: a YAML file: a recipe, some of whose values are ranges, like
            ``{suggest: float, low: 0, high: 1}``.
        out: the folder for the trials, the best recipe and the best model.
        evaluate: the command that evaluates a model. ``{model}`` in it is replaced by the model's
            folder. The last line that the command prints is a number, or a JSON object of numbers.
        OPTIONS
        trials: the number of models to try, including those of earlier calls.
        sampler: the algorithm that chooses values: ``tpe``, ``random``, ``grid``, ``cmaes`` or
            ``nsga2``.
        metrics: the key, or a list of the keys, of the JSON object whose numbers are the
            objectives.
        directions: ``maximize`` or ``minimize`` for all objectives, or a list with one of these
            words for each objective.
        timeout: the seconds that an evaluation may take; None for no limit.
        keep_best: the number of models that stay on the disk.
        batch: the number of trials that are suggested together, and, if a sweep can express them,
            merged in one run. None for the batch that the search began with; for a new search, that
            is `jobs`.
        jobs: the number of evaluations of one batch that run at the same time. The environment
            variable ``RESUMERGE_JOB`` numbers them from 0.
        progress: as for `compare`.

    Returns:
        The document of ``search --json``, which notebooks and consoles display.

    Raises:
        InputError: the space, the command or an option is invalid; or no model could be evaluated.
        Resumable: a model, the disk or the state folder cannot be used now.
        Interrupted: a signal stopped the search; finished trials are kept.
    """
    request = Search(
        space=local_path(space, "space"),
        out=local_path(out, OUTPUT),
        evaluate=text_of(evaluate, "evaluate"),
        trials=trials,
        sampler=sampler,
        metrics=texts_of(metrics, "metrics"),
        directions=texts_of(directions, "directions"),
        timeout=timeout,
        keep_best=keep_best,
        batch=batch,
        jobs=jobs,
    )
    read_options = Options.read("search", options)
    with keepalive_in_notebook("searching", progress):
        return DisplayedSearch(run_search(request, read_options, Reporter()))
