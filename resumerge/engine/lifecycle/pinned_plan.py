"""Planning with the sources pinned: as a run began, whatever a branch or a folder is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumerge.engine.lifecycle.open_models import in_order, open_sources, with_place
from resumerge.errors import InputError
from resumerge.ledger import Ledger
from resumerge.options import SEED, SHARD_SIZE, Options
from resumerge.planning import Plan, check_recipe, make_plan
from resumerge.recipe import Recipe
from resumerge.sources import MetadataCache
from resumerge.sources.companions import outward_links
from resumerge.sources.tokenizers.required import read_tokenizers


def pinned_plan(
    recipe: Recipe,
    pins: Mapping[str, dict[str, Any]],
    began: Mapping[str, Any],
    options: Options,
    metadata: MetadataCache,
) -> Plan:
    """Open the sources, where a run has pinned them if it has, and plan.

    What needs no model comes first, then what needs no network.

    Args:
        pins: `revision` and `folder` of each model.
        began: the options that the run began with.
    """
    problems = check_recipe(recipe)
    sources = open_sources(recipe, pins, problems, metadata, options.offline)
    seed = began.get("seed", SEED) if options.seed is None else options.seed
    size = options.shard_size or began.get("shard_size", SHARD_SIZE)
    try:
        tokenizers = read_tokenizers(recipe, sources, metadata, offline=options.offline)
        plan = make_plan(recipe, sources, tokenizers, seed=seed, shard_size=size)
    except InputError as error:
        found = (with_place(recipe, problem) for problem in error.problems)
        problems += [problem for problem in found if problem not in problems]
    if problems:
        raise in_order(problems)
    return replace(plan, notes=(*plan.notes, *_notes_on_links(plan)))


def pins_of(ledger: Ledger, *, looks_anew: bool) -> dict[str, dict[str, Any]]:
    """Where a run's sources are, by the text of their references.

    Args:
        looks_anew: local ones are where their names lead now.
    """
    return {row["model"]: _pin(row, looks_anew=looks_anew) for row in ledger.sources()}


def _pin(source: Mapping[str, Any], *, looks_anew: bool) -> dict[str, Any]:
    """Where a run's source is: its commit, or its folder, unless that is named anew."""
    if source["kind"] == "lora":
        return {}
    if source["kind"] == "hub":
        return {"revision": source["revision"]}
    folder = Path(source["folder"])
    return {} if looks_anew or not folder.is_dir() else {"folder": folder}


def _notes_on_links(plan: Plan) -> Iterator[str]:
    for part in plan.sources[plan.reference].parts.values():
        names = outward_links(part.folder) if part.kind == "local" else []
        if names:
            yield (
                f"not copied, since they are links that lead out of {part.folder}: "
                f"{', '.join(names)}; put the files themselves there if the result shall have them"
            )
