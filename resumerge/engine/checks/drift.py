"""Drift: compares a run's recipe, sources, options and program with their present state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from resumerge.engine.checks.contents import (
    changed_files,
    read_before,
    touched_files,
    units_of,
)
from resumerge.engine.checks.fingerprint_diff import advice, describe_differences, headline
from resumerge.engine.context import RunContext
from resumerge.engine.recovery.touched_sources import TouchedSources
from resumerge.errors import InputError, Problem, Reason, refuse
from resumerge.event_kinds import EventKind
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RECIPE_FILE, output_as_named
from resumerge.ledger.validators import SOURCE
from resumerge.ledger.validity import RECIPE_TEXT
from resumerge.planning import Estimate, Plan, fingerprint_parts
from resumerge.planning.fingerprint import methods_in
from resumerge.planning.plan import SourceFileKey
from resumerge.printable import shell_line
from resumerge.recipe import Recipe, load_recipe, parse_recipe
from resumerge.recipe.average import checkpoints_since
from resumerge.recipe.normalized import normalized
from resumerge.recipe.yaml_lines import MOST_CHARS
from resumerge.sizes import some


def check_recipe_drift(
    context: RunContext, record: Mapping[str, Any], wanted: Recipe | None, *, replaced: bool
) -> Recipe:
    """Return the recipe to merge; refuse a recipe that differs from the run's.

    If the command's recipe has the same meaning, the run's own text is used, because the model card
    shows it.

    Args:
        context: its state folder and options are repeated in the advice of the error.
        record: the run's row in its ledger.
        wanted: the recipe that the command names, or the current content of the run's recipe file.
            None to use the recipe that the run was created with.
        replaced: whether a new run replaces the run; its recipe may differ.

    Raises:
        InputError: the recipe differs and the run is not replaced.
    """
    recipe = parse_recipe(record["config_text"], record["config_path"])
    if wanted is None:
        return recipe
    if replaced:
        return wanted
    parts_before, parts_now = {"recipe": normalized(recipe)}, {"recipe": normalized(wanted)}
    _refuse_drift(context, record, parts_before, parts_now, wanted.file)
    return recipe


def check_source_drift(
    context: RunContext, record: Mapping[str, Any], plan: Plan, estimate: Estimate, ledger: Ledger
) -> TouchedSources | None:
    """Refuse to continue a run if a source, an option or the program differs.

    Returns:
        the local files with new stamps that may be accepted; None if there are none.

    Raises:
        InputError: something differs; the error names it and says what to do.
        Resumable: a file cannot be read now.
    """
    is_corrected = is_corrected_method(record, plan, ledger)
    check_same_plan(context, record, plan, ledger, but_methods=is_corrected)
    return check_contents(context, record, plan, estimate, ledger)


def check_same_plan(
    context: RunContext,
    record: Mapping[str, Any],
    plan: Plan,
    ledger: Ledger,
    *,
    but_methods: bool = False,
) -> None:
    """Refuse to compute blocks of a run if the plan or the program differs from the run's.

    Args:
        context: its state folder and options are repeated in the advice of the error.
        record: the run's row in its ledger.
        plan: the plan that was made now, from the run's pinned sources.
        ledger: the ledger of the run, with the shards and units that the plan must have.
        but_methods: whether the code of users' methods may differ.

    Raises:
        InputError: something differs; the error names it and says what to do.
    """
    parts_before, parts_now = json.loads(record["fingerprint_parts"]), fingerprint_parts(plan)
    parts_before.pop(RECIPE_TEXT)  # texts with the same meaning are the same recipe
    if but_methods:
        parts_before |= methods_in(parts_now)
    _refuse_drift(context, record, parts_before, parts_now, record["config_path"])
    _check_fits(plan, ledger)


def check_contents(
    context: RunContext, record: Mapping[str, Any], plan: Plan, estimate: Estimate, ledger: Ledger
) -> TouchedSources | None:
    """Refuse to continue a run if a local model differs from the bytes that were merged before.

    If the stamp of a file has changed, its content is compared: the ranges that committed units
    were computed from are read again. Ranges that were never read are not compared. If the last
    attempt ended because the model had changed during the merge, the run is not refused; the
    affected units are computed again.

    Returns:
        the files with new stamps that may be accepted; None if there are none.

    Raises:
        InputError: files differ; the error names them and says what to do.
        Resumable: a file cannot be read now.
    """
    touched_keys = touched_files(plan, ledger)
    if not touched_keys:
        return None
    is_trusted = context.options.trust_sources
    differing_files = (
        set() if is_trusted else _changed_files(context, plan, estimate, ledger, touched_keys)
    )
    if differing_files and not _is_announced(plan, ledger, differing_files):
        parts_before, parts_now = fingerprint_parts(plan), fingerprint_parts(plan)
        for source_number, file_name in differing_files:
            parts_now[f"{SOURCE}{plan.sources[source_number].ref}"]["files"][file_name][
                "contents"
            ] = "other"
        _refuse_drift(context, record, parts_before, parts_now, record["config_path"])
    return TouchedSources(
        files=sorted(
            str(plan.sources[source_number].path(file_name))
            for source_number, file_name in touched_keys
        ),
        units=units_of(plan, ledger, touched_keys, differing_files),
        is_changed=bool(differing_files),
        is_trusted=is_trusted,
        read=read_before(plan, ledger, touched_keys),
    )


def is_corrected_method(record: Mapping[str, Any], plan: Plan, ledger: Ledger) -> bool:
    """Return whether a method's code failed, stopped the run, and has changed since."""
    if record["state"] == "done":
        return False
    stop_causes = [event["data"].get("cause") for event in ledger.events.all(EventKind.STOPPED)]
    code_before = methods_in(json.loads(record["fingerprint_parts"]))
    return Reason.METHOD in stop_causes and methods_in(fingerprint_parts(plan)) != code_before


def is_of_recipe(record: Mapping[str, Any], recipe: Recipe) -> bool:
    """Return whether a run has this recipe; its patterns may match more checkpoints than before.

    Args:
        record: the run's row in its ledger.
        recipe: the recipe to compare with the run's.
    """
    if checkpoints_since(recipe.text, record["config_text"]) is not None:
        return True
    recipe_of_run = parse_recipe(record["config_text"], record["config_path"])
    return normalized(recipe_of_run) == normalized(recipe)


def without_new_checkpoints(
    context: RunContext, record: Mapping[str, Any], recipe: Recipe
) -> Recipe | None:
    """Return a recipe; None if it is the run's, except for newer checkpoints that patterns match.

    The newer checkpoints are reported to the user: they are not in the run.
    """
    newer_checkpoints = checkpoints_since(recipe.text, record["config_text"])
    if newer_checkpoints:
        context.reporter.note(
            f"not in this run, since they are newer than it: {some(newer_checkpoints)}; start "
            "over with --restart, or name another output, to have them"
        )
    return recipe if newer_checkpoints is None else None


def edited_recipe(context: RunContext, record: Mapping[str, Any]) -> Recipe | None:
    """Return the run's recipe file as it is now; None if it is unchanged, missing or unreadable.

    Raises:
        InputError: the file is no longer a valid recipe.
    """
    recipe_file = Path(record["config_path"])
    try:
        if read_foreign(recipe_file, 4 * MOST_CHARS) == record["config_text"].encode():
            return None
    except (OSError, UnfitFile) as error:
        reason = getattr(error, "strerror", None) or error
        context.reporter.note(f"{recipe_file}: {reason}; using the run's own copy of the recipe")
        return None
    try:
        return load_recipe(recipe_file)
    except InputError as error:
        copy_problem = Problem(
            "The run has a copy of the recipe that it was created with",
            where=_own_recipe(context, record),
            fix=f"use that copy: `{_run_own_recipe(context, record)}`",
        )
        raise InputError([*error.problems, copy_problem]) from error


def _changed_files(
    context: RunContext, plan: Plan, estimate: Estimate, ledger: Ledger, touched: set[SourceFileKey]
) -> set[SourceFileKey]:
    """Return the touched files that differ from the bytes that were merged before."""
    reporter = context.reporter

    def on_progress(done: int, total: int) -> None:
        reporter.reading(done, total)
        context.stop.check()

    reporter.doing("comparing the models with what was merged before")
    return changed_files(plan, estimate, ledger, touched, on_progress)


def _is_announced(plan: Plan, ledger: Ledger, changed: set[SourceFileKey]) -> bool:
    """Return whether the last attempt reported that the models of these files had changed.

    That report also says that resuming computes the affected units again.
    """
    attempts = ledger.attempts.all()
    last_report = ledger.events.last(EventKind.SOURCE_CHANGED)
    if last_report is None or not attempts or last_report["attempt"] != attempts[-1]["n"]:
        return False
    models = {plan.sources[n].part_of(name)[0].ref.text for n, name in changed}
    return models <= set(last_report["data"].get("models", ()))


def _check_fits(plan: Plan, ledger: Ledger) -> None:
    """Check that a ledger has the same shards and units as the plan.

    Raises:
        InputError: shards or units differ; the ledger was not written for this plan and is not
            trusted.
    """
    planned_shards = [(s.number, s.name, s.nbytes, len(s.header)) for s in plan.shards]
    planned_units = [(u.number, u.name, u.shard, u.offset, u.nbytes, u.blocks) for u in plan.units]
    shard_columns = itemgetter("number", "name", "nbytes", "header_bytes")
    unit_columns = itemgetter("number", "name", "shard", "offset", "nbytes", "blocks")
    ledger_rows = (
        list(map(shard_columns, ledger.shards.all())),
        list(map(unit_columns, ledger.units.all())),
    )
    if ledger_rows != (planned_shards, planned_units):
        raise refuse(
            "The ledger does not match its recipe",
            where=str(ledger.path),
            found="shards or tensors that differ from the plan",
            fix=f"delete {ledger.path.parent}, then run the recipe again; if the ledger came "
            "from a mirror, name another mirror",
        )


def _refuse_drift(
    context: RunContext,
    record: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    config: str,
) -> None:
    """Raise an error if the parts of two fingerprints differ."""
    kinds, differences = describe_differences(before, after)
    if differences:
        output = output_as_named(record["output"], record["mirror"])
        restart_words = [output, "--state-dir", str(context.runs.folder)]
        restart_words += context.options.words_to_start_over(json.loads(record["options"]))
        if not Path(config).exists():  # it was passed in Python, or is deleted
            config = _own_recipe(context, record)
        command_words = ["resumerge", "run", config, *restart_words, "--restart"]
        raise refuse(
            headline(kinds),
            where=output,
            found="; ".join(differences[:6]),
            fix=advice(kinds, _run_own_recipe(context, record), shell_line(command_words)),
        )


def _own_recipe(context: RunContext, record: Mapping[str, Any]) -> str:
    """Return the path of the run's copy of its recipe."""
    return str(context.runs.folder / record["id"] / RECIPE_FILE)


def _run_own_recipe(context: RunContext, record: Mapping[str, Any]) -> str:
    """Return the command that continues a run with the run's copy of its recipe."""
    out = output_as_named(record["output"], record["mirror"])
    command_words = ["resumerge", "run", _own_recipe(context, record), out]
    return shell_line([*command_words, "--state-dir", str(context.runs.folder)])
