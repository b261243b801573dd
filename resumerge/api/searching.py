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
    """Search for the values of a recipe that an evaluation likes best.

    A search that was stopped goes on where it was, if it is asked for again.

    Args:
        space: a YAML file: a recipe, some of whose values are ranges, like
            ``{suggest: float, low: 0, high: 1}``.
        out: the folder for the trials, the best recipe and the best model.
        evaluate: the command that evaluates a model; ``{model}`` stands for its folder. It prints a
            number, or a JSON object of numbers, as its last line.
        OPTIONS
        trials: the number of models to try, with those that were tried before.
        sampler: how values are chosen: tpe, random, grid, cmaes or nsga2.
        metrics: the numbers of the JSON object that are the objectives; a text is one.
        directions: maximize or minimize: one for all, or one for each objective; a text is one.
        timeout: seconds that an evaluation may take; None for no limit.
        keep_best: the number of models that stay on the disk.
        batch: the number of trials that are suggested together, and merged in one run where a sweep
            can; None for as many as `jobs`.
        jobs: the number of evaluations at a time, of one batch. Each has its number, from 0 on, in
            ``RESUMERGE_JOB``.
        progress: as for `compare`.

    Returns:
        the document of ``search --json``, which notebooks and consoles display.

    Raises:
        InputError: the space, the command or an option is invalid; or no model could be evaluated.
        Resumable: a model, the disk or the state folder cannot be used now.
        Interrupted: a signal stopped it; the trials that are finished are kept.
    """
    asked = Search(
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
    chosen = Options.read("search", options)
    with keepalive_in_notebook("searching", progress):
        return DisplayedSearch(run_search(asked, chosen, Reporter()))
