"""Drift: whether recipe, sources, options and program are still what the run was created with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from resumerge.engine.checks.fingerprint_diff import SOURCE, advice, describe, headline
from resumerge.engine.context import RunContext
from resumerge.errors import InputError, Problem, refuse
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RECIPE_FILE
from resumerge.planning import Plan, fingerprint_parts
from resumerge.printable import shell_line
from resumerge.recipe import Recipe, load_recipe, parse_recipe
from resumerge.sizes import counted
from resumerge.sources import Source
from resumerge.sources.formats.content_samples import sample


def check_recipe_drift(
    context: RunContext, record: Mapping[str, Any], given: Recipe | None
) -> Recipe:
    """The recipe to merge; refused where it differs from the one that the run was created with.

    The run's own text is used even where another one means the same: the model card shows it.

    Args:
        record: of the run, in its ledger.
        given: the recipe that the command names; None compares the file that the run was created
            from, if it still exists.

    Raises:
        InputError: the recipe differs, and ``--restart`` is not given.
    """
    recipe = parse_recipe(record["config_text"], record["config_path"])
    if given is None:
        given = _edited_recipe(context, record)
    if given is None:
        return recipe
    if context.options.restart:
        return given
    before, after = {"recipe": recipe.normalized()}, {"recipe": given.normalized()}
    _refuse_drift(context, record, before, after, given.file)
    return recipe


def check_source_drift(
    context: RunContext, record: Mapping[str, Any], plan: Plan, ledger: Ledger
) -> None:
    """Refuse to continue where a source, an option or the program differs.

    Raises:
        InputError: with what differs, and what to do.
    """
    before = json.loads(record["fingerprint_parts"])
    after, touched = _current_parts(before, plan, ledger.sources())
    _refuse_drift(context, record, before, after, record["config_path"])
    if touched:
        files = counted(len(touched), "model file")
        context.reporter.note(f"{files}: the time of change is new, the content is the same")
        ledger.event("source_touched", files=touched[:5])


def is_of_recipe(record: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether a run, by its ledger's record, is of this recipe."""
    theirs = parse_recipe(record["config_text"], record["config_path"])
    return theirs.normalized() == recipe.normalized()


def samples(source: Source) -> dict[str, str]:
    """A content sample of every file of a source that is identified by its time of change."""
    return {
        name: sample(source.path(name))
        for name, file in source.files.items()
        if "mtime_ns" in file.identity
    }


def _edited_recipe(context: RunContext, record: Mapping[str, Any]) -> Recipe | None:
    """The recipe's file as it is now; None where it is unchanged, gone or unreadable."""
    file = Path(record["config_path"])
    try:
        if file.read_bytes() == record["config_text"].encode():
            return None
    except OSError as error:
        context.reporter.note(f"{file}: {error.strerror}; using the run's own copy of the recipe")
        return None
    try:
        return load_recipe(file)
    except InputError as error:
        own = Problem(
            "The run has a copy of the recipe that it was created with",
            where=_own_recipe(context, record),
            fix=f"use that copy: `{_run_own_recipe(context, record)}`",
        )
        raise InputError([*error.problems, own]) from error


def _current_parts(
    before: Mapping[str, Any], plan: Plan, rows: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The parts of a plan's fingerprint, without times of change that mean nothing.

    A file that differs only in its time of change (it was touched, copied, or downloaded again)
    counts as the same if its content sample is the same.

    Args:
        before: the parts when the run was created.
        rows: of the ledger's table `sources`.

    Returns:
        The parts, and the files that differ only in their time of change.
    """
    kept = {row["model"]: json.loads(row["identity"]).get("samples", {}) for row in rows}
    parts = fingerprint_parts(plan)
    touched = []
    for source in plan.sources:
        key = f"{SOURCE}{source.ref}"
        known = before.get(key, {}).get("files", {})
        for name, facts in parts[key]["files"].items():
            was = known.get(name, {})
            same_but_for_time = {**facts, "mtime_ns": was.get("mtime_ns")} == was
            if facts == was or not same_but_for_time:
                continue
            path = source.path(name)
            if kept.get(source.ref.text, {}).get(name) == sample(path):
                facts["mtime_ns"] = was["mtime_ns"]
                touched.append(str(path))
    return parts, touched


def _refuse_drift(
    context: RunContext,
    record: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    config: str,
) -> None:
    """Raise an error if two fingerprints differ."""
    kinds, lines = describe(before, after)
    if lines:
        rest = [record["output"], "--state-dir", str(context.runs.folder)]
        restart = ["resumerge", "run", config, *rest, "--restart"]
        raise refuse(
            headline(kinds),
            where=record["output"],
            found="; ".join(lines[:6]),
            fix=advice(kinds, _run_own_recipe(context, record), shell_line(restart)),
        )


def _own_recipe(context: RunContext, record: Mapping[str, Any]) -> str:
    """The run's copy of its recipe."""
    return str(context.runs.folder / record["id"] / RECIPE_FILE)


def _run_own_recipe(context: RunContext, record: Mapping[str, Any]) -> str:
    """The command that continues with the recipe that the run was created with."""
    words = ["resumerge", "run", _own_recipe(context, record), record["output"]]
    return shell_line([*words, "--state-dir", str(context.runs.folder)])
