"""Functions about models: `compare`, `cache_check`, `cache_repair`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Unpack

from resumerge.api.calls import Config, model_of, recipe_file, speaks_python
from resumerge.comparison import compare_models
from resumerge.documents.cache_check import CacheReport, check_cache, repair_cache
from resumerge.engine.reporter import Reporter
from resumerge.options import Options
from resumerge.options.call_options import CompareOptions
from resumerge.options.signature import with_options
from resumerge.options.types import StrPath
from resumerge.ui.notebook.in_process import keepalive_in_notebook
from resumerge.ui.notebook.results import DisplayedComparison


@with_options("compare")
@speaks_python
def compare(
    *models: StrPath,
    base: StrPath | None = None,
    recipe: Config | None = None,
    progress: str = "auto",
    **options: Unpack[CompareOptions],
) -> DisplayedComparison:
    """Compare models tensor by tensor: what is equal, what differs by how much, and in which way.

    A comparison that was stopped goes on where it was, if the same models are compared again.

    Args:
        models: references as in a recipe: folders, files, Hub repos, places in buckets, each with
            an adapter or without. The others are compared with the first.
        base: the model that they were made of; each is compared with it, too.
        recipe: a recipe of several documents, as for `plan`: models called like one of them are its
            results (stages), which are computed and not written.
        OPTIONS
        progress: ``auto`` prints a line every few seconds in a notebook, and nothing elsewhere;
            ``bar`` and ``lines`` print such lines everywhere; ``json`` and ``none`` do not.

    Returns:
        the document of ``compare --json``, which notebooks and consoles display.

    Raises:
        InputError: a reference is no model, or a file cannot be read by ranges.
        Resumable: a model, or the state folder, cannot be used now.
        Interrupted: a signal stopped it; what was compared is kept.
    """
    chosen = Options.read("compare", options)
    named = None if base is None else model_of(base)
    in_file = nullcontext() if recipe is None else recipe_file(recipe)
    with in_file as file, keepalive_in_notebook("comparing", progress):
        path = file.path if file is not None else None
        return DisplayedComparison(
            compare_models([*map(model_of, models)], named, chosen, Reporter(), recipe=path)
        )


@speaks_python
def cache_check(
    target: StrPath, *, state_dir: StrPath | None = None, offline: bool = False
) -> CacheReport:
    """Read the cached files of a recipe or a Hub repo and compare them with their checksums.

    Args:
        target: a recipe, or ``org/name``.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.
        offline: do not use the network.

    Raises:
        InputError: there is no such recipe, or the cache has no file of the repo.
    """
    options = Options.read("cache check", {"state_dir": state_dir, "offline": offline})
    return check_cache(str(target), options)


@speaks_python
def cache_repair(target: StrPath, *, state_dir: StrPath | None = None) -> CacheReport:
    """Check like `cache_check`, then download only the files that are damaged or missing.

    Args:
        target: a recipe, or ``org/name``.
        state_dir: the folder of the ledgers; by default ./state, or RESUMERGE_STATE_DIR.

    Raises:
        InputError, Resumable: as for `run`.
    """
    return repair_cache(str(target), Options.read("cache repair", {"state_dir": state_dir}))
