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
    """Compare models tensor by tensor: which tensors are equal, and how the others differ.

    If a comparison was stopped, a call with the same models continues it.

    Args:
        models: references as in a recipe: folders, files, Hub repos or places in buckets, with or
            without an adapter. Each model after the first is compared with the first.
        base: the model that they were derived from. Each model is also compared with the base.
        recipe: a recipe of several documents, as for `plan`. A model with the name of one of its
            stages is the result of that stage, which is computed while it is read and not written.
        OPTIONS
        progress: ``auto`` prints a line every few seconds in a notebook, and nothing elsewhere;
            ``bar`` and ``lines`` print such lines everywhere; ``json`` and ``none`` do not.

    Returns:
        The document of ``compare --json``, which notebooks and consoles display.

    Raises:
        InputError: a reference does not name a model, or a file cannot be read by ranges.
        Resumable: a model, or the state folder, cannot be used now.
        Interrupted: a signal stopped the comparison; the finished part is kept.
    """
    read_options = Options.read("compare", options)
    base_reference = None if base is None else model_of(base)
    recipe_context = nullcontext() if recipe is None else recipe_file(recipe)
    with recipe_context as file, keepalive_in_notebook("comparing", progress):
        path = file.path if file is not None else None
        return DisplayedComparison(
            compare_models(
                [*map(model_of, models)], base_reference, read_options, Reporter(), recipe=path
            )
        )


@speaks_python
def cache_check(
    target: StrPath, *, state_dir: StrPath | None = None, offline: bool = False
) -> CacheReport:
    """Read the cached files of a recipe or a model, and compare them with their checksums.

    Args:
        target: the path of a recipe, for the cached files that its merge reads; or ``org/name``,
            ``org/name@revision`` or ``s3://bucket/prefix``, for all cached files of that model.
        state_dir: the folder of the ledgers; by default RESUMERGE_STATE_DIR, else ``./state``.
        offline: do not use the network.

    Returns:
        The state of each file. `intact` is true if all files are intact.

    Raises:
        InputError: there is no such recipe, or the cache has no file of the model.
    """
    options = Options.read("cache check", {"state_dir": state_dir, "offline": offline})
    return check_cache(str(target), options)


@speaks_python
def cache_repair(target: StrPath, *, state_dir: StrPath | None = None) -> CacheReport:
    """Check files as `cache_check` does, and download the files that are damaged or missing.

    Args:
        target: the path of a recipe, for the cached files that its merge reads; or ``org/name``,
            ``org/name@revision`` or ``s3://bucket/prefix``, for all cached files of that model.
        state_dir: the folder of the ledgers; by default RESUMERGE_STATE_DIR, else ``./state``.

    Returns:
        The state of each file; ``repaired`` for a file that was downloaded.

    Raises:
        InputError: there is no such recipe, the cache has no file of the model, or the Hub denies
            access to a file.
        Resumable: the network or the disk failed.
    """
    return repair_cache(str(target), Options.read("cache repair", {"state_dir": state_dir}))
