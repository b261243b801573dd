"""The opening of a recipe's models. All problems are reported together, each with its line."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumerge.buckets.address import is_bucket
from resumerge.engine.resources.resource_errors import UNFIT_ERRORS
from resumerge.errors import InputError, Problem, Resumable
from resumerge.planning.reference_files import reference_without_config
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.references import is_local
from resumerge.recipe.spelling import closest
from resumerge.sources import MetadataCache, Source, open_source
from resumerge.sources.index import ADAPTER, MODEL, Contents

PATIENCE_SECONDS = 2.0
"""Seconds of waiting for a server after which a note names the model: a path may be misspelled."""

_log = logging.getLogger(__name__)


class SourcesUnavailable(InputError):
    """The error for a model that could not be opened. It may be available again later."""


def open_sources(
    recipe: Recipe,
    pins: Mapping[str, dict[str, Any]],
    problems: list[Problem],
    metadata: MetadataCache,
    offline: bool,
    note: Callable[[str], None] = lambda text: None,
) -> dict[ModelRef, Source]:
    """Open every model that the recipe reads, and return the sources in the recipe's order.

    Local models are opened first. If one of them has a problem, the network is not used.

    Args:
        recipe: the recipe whose `source_models` are opened; problems name its lines.
        pins: the `revision` or `path` of each model that a run has pinned.
        problems: the problems of the recipe. The problems of the models are appended to this list.
        metadata: the cache that keeps what servers said about remote files.
        offline: whether to work without network.
        note: called with a text about a slow server, or about a name that is probably misspelled.

    Raises:
        SourcesUnavailable: a model could not be opened. The error has all problems.
        Resumable: the network failed.
    """
    opened_sources: dict[ModelRef, Source] = {}
    local_refs, remote_refs = _local_then_remote(recipe, pins)
    for refs in (local_refs, remote_refs):
        for ref in refs:
            hint = _hint(recipe, ref) if ref in remote_refs and _on_the_hub(ref) else ""
            if is_doubtful := ref in remote_refs and not pins and _is_doubtful(recipe, ref):
                note(
                    f"{ref} is no model of the recipe, and no folder: the Hub is asked for a "
                    f"repo of that name. {hint}"
                )
            try:
                server = "the bucket" if is_bucket(ref.name) else "the Hub"
                slow_text = f"Still waiting for an answer from {server} about {ref}."
                slow_text += f" {hint}" if hint and not is_doubtful else ""
                with _note_if_slow(slow_text, note) if ref in remote_refs else nullcontext():
                    source = open_source(
                        ref,
                        pins,
                        offline=offline,
                        metadata=metadata,
                        contents=_contents(recipe, ref),
                    )
                opened_sources[ref] = source
                _log.info("opened %s: %s, in %s", ref, source.kind, source.folder)
            except Resumable as error:
                raise Resumable(error.reason, f"{error}\n{hint}".strip()) from error
            except InputError as error:
                model_problems = error.problems
                if offline and hint:  # without the Hub, the name may also be a misspelled path
                    path_hint = folder_hint(ref)
                    model_problems = [
                        replace(p, fix=f"{p.fix}. {path_hint}") for p in model_problems
                    ]
                problems += [_where_named(recipe, ref, problem) for problem in model_problems]
            except OSError as error:
                if pins or error.errno not in UNFIT_ERRORS:
                    raise
                problems.append(_where_named(recipe, ref, _unreadable(ref, error)))
        if problems and not offline:
            break
    if len(opened_sources) < len(recipe.source_models):
        problems += reference_without_config(recipe, opened_sources)
        raise SourcesUnavailable(in_order(problems).problems)
    return {ref: opened_sources[ref] for ref in recipe.source_models}


def _contents(recipe: Recipe, ref: ModelRef) -> Contents | None:
    """Return the contents that a reference must have; None to accept a model or an adapter."""
    if recipe.is_adapter(ref):
        return ADAPTER
    merge_documents = (document for document in recipe.documents if document.has_method)
    return None if any(ref in merge.merged_models for merge in merge_documents) else MODEL


def with_place(recipe: Recipe, problem: Problem) -> Problem:
    """Return the problem with the line where the recipe names the model concerned."""
    for ref in recipe.source_models:
        problem = _where_named(recipe, ref, problem)
    return problem


def in_order(problems: list[Problem]) -> InputError:
    """Return an error with the problems, ordered by line."""
    return InputError(sorted(problems, key=lambda p: (p.line is None, p.line or 0)))


@contextmanager
def _note_if_slow(text: str, note: Callable[[str], None]) -> Iterator[None]:
    """Pass a text to `note` if the ``with`` block takes longer than `PATIENCE_SECONDS`."""
    timer = threading.Timer(PATIENCE_SECONDS, note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _on_the_hub(ref: ModelRef) -> str | None:
    """Return the first name in a reference that is a repo on the Hub, or None."""
    names = (part.name for part in ref.parts)
    return next((name for name in names if not is_bucket(name) and not is_local(name)), None)


def _hint(recipe: Recipe, ref: ModelRef) -> str:
    """Return a hint on a remote model: its place in the recipe, and other meanings of its name."""
    document = next(d for d in recipe.documents if any(ref in (m, *m.parts[1:]) for m in d.models))
    path = next(document.path_of(m) for m in document.models if ref in (m, *m.parts[1:]))
    line = document.line(path)
    place = f"{path}, line {line}" if line is not None else path
    tokenizer_hint = (
        " A tokenizer may also be 'union' or 'base'." if path.startswith("tokenizer") else ""
    )
    return f"The recipe names it at {place}. {folder_hint(ref)}{tokenizer_hint}"


def folder_hint(ref: ModelRef) -> str:
    """Return a hint for the name of a repo on the Hub, which the user may have meant as a path.

    The hint is empty if no part of the model is on the Hub.
    """
    if (name := _on_the_hub(ref)) is None:
        return ""
    path = Path(name)
    try:
        folders = sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir())
    except OSError:
        folders = []
    similar_name = closest(path.name, folders)
    similar_path_text = f"; there is {path.parent / similar_name}" if similar_name else ""
    return (
        f"If {name} is meant to be a folder: it does not exist in {Path.cwd()}{similar_path_text}."
    )


def _is_doubtful(recipe: Recipe, ref: ModelRef) -> bool:
    """Return whether a model that only provides a tokenizer is probably a misspelled name.

    Names without a slash are doubtful: only the oldest repos on the Hub have one, like ``gpt2``.
    """
    merged_refs = (m for document in recipe.documents for m in document.merged_models)
    return ref not in merged_refs and not any("/" in part.name for part in ref.parts)


def _local_then_remote(
    recipe: Recipe, pins: Mapping[str, dict[str, Any]]
) -> tuple[list[ModelRef], list[ModelRef]]:
    """Return the models whose parts are all local, and the models with a remote part."""
    local_refs: list[ModelRef] = []
    remote_refs: list[ModelRef] = []
    for ref in recipe.source_models:
        is_local_model = all("path" in pins.get(p.text, {}) or is_local(p.name) for p in ref.parts)
        (local_refs if is_local_model else remote_refs).append(ref)
    return local_refs, remote_refs


def _unreadable(ref: ModelRef, error: OSError) -> Problem:
    return Problem(
        "A model cannot be read",
        where=ref.text,
        expected="a folder with config.json and model.safetensors",
        found=f"{error.filename}: {error.strerror}",
        fix="change its permissions, or name another folder",
    )


def _where_named(recipe: Recipe, source: ModelRef, problem: Problem) -> Problem:
    """Return a model's problem with the line of the first document that names the model."""
    for document in recipe.documents:
        for ref in document.models:
            if source == ref or source in ref.parts[1:]:
                return _named_in(document, ref, problem)
    return problem


def _named_in(recipe: Recipe, ref: ModelRef, problem: Problem) -> Problem:
    """Return a problem with the line where the recipe names the model.

    A problem of another model is returned unchanged.
    """
    model_names = {ref.text, *(part.name for part in ref.parts), *(_folder(p) for p in ref.parts)}
    name, _, revision = problem.where.partition("@")
    if problem.where not in model_names and (name not in model_names or "/" in revision):
        return problem
    recipe_path = recipe.path_of(ref)
    located_what = f"{problem.what}: {problem.where}"
    return replace(
        problem,
        what=located_what,
        where=recipe.file,
        path=recipe_path,
        line=recipe.line(recipe_path),
    )


def _folder(part: ModelRef) -> str:
    if not is_local(part.name):
        return part.name
    # The methods of Path raise for the home of an unknown user and for circular links.
    return os.path.realpath(os.path.expanduser(part.name))  # noqa: PTH111
