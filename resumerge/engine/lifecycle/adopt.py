"""Adopt an existing run: lock it, open its ledger, and take over its options."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.engine.checks.drift import (
    check_recipe_drift,
    edited_recipe,
    is_of_recipe,
    without_new_checkpoints,
)
from resumerge.engine.checks.paths import check_outside, source_folders
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.abandon_output import abandon_output
from resumerge.engine.lifecycle.bucket_output import check_stays_in_bucket
from resumerge.engine.lifecycle.find import ExistingRun, NewRun
from resumerge.engine.mirror_session.abandon import abandon_mirror, find_written, mirrored_files
from resumerge.engine.mirror_session.checks import check_has_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.opening.open_sources import SourcesUnavailable
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.opening.pins import pins_of, ranks_of
from resumerge.engine.recovery.open_ledger import open_ledger
from resumerge.engine.recovery.ownership import written_files
from resumerge.engine.resources.lock import output_lock, run_lock
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.errors import InputError, Problem, refuse, unavailable
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import output_as_named
from resumerge.output_path import OutputPath
from resumerge.planning import Estimate, Plan
from resumerge.recipe import Recipe


@dataclass(frozen=True)
class AdoptedRun:
    """An existing run, locked by this process.

    Args:
        ledger: the run's ledger, open and writable; `adopt` closes it when its context ends.
        record: the run's row in the ledger, as it was when the run was adopted.
        recipe: the recipe to merge: the run's own; or, if a new run replaces this one, the new
            run's recipe.
        config: the path of the recipe's file.
        names_recipe: whether the command names a recipe. If so, the recipe's paths are resolved
            again to find local models, and a new run inherits no options.
        mirror: the session with the run's mirror; None without a mirror.
        mirror_named: whether the command names the mirror. A named mirror may be empty.
        restored: whether the ledger was restored from its snapshot and has not been compared with
            the shards yet.
        replaced: whether a new run replaces this one.
    """

    ledger: Ledger
    record: Mapping[str, Any]
    recipe: Recipe
    config: Path
    names_recipe: bool
    mirror: MirrorSession | None
    mirror_named: bool
    restored: bool
    replaced: bool

    @property
    def out(self) -> OutputPath:
        return OutputPath(Path(self.record["output"]))

    @property
    def folder(self) -> Path:
        """The ledger's folder."""
        return self.ledger.path.parent


@contextmanager
def adopt(context: RunContext, found: ExistingRun) -> Iterator[AdoptedRun]:
    """Lock a run and open its ledger.

    `context.options` is changed: options that the command leaves out are inherited from the run. If
    a ``run`` command replaces the run, nothing is inherited.

    Raises:
        InputError: another process is working on the run, its ledger is damaged, its recipe
            changed, or options of the command contradict the run.
    """
    context.run_id = found.folder.name
    with run_lock(found.folder, found.folder.name):
        ledger, is_restored = open_ledger(found.folder, context.storage)
        with closing(ledger):
            record = ledger.run()
            named_output = found.out.path if found.out is not None else context.options.output
            _check_same_output(record, named_output)
            is_mirror_named = context.options.mirror is not None
            run_mirror_url = context.mirror.url if context.mirror else record["mirror"]
            chosen_url = context.options.mirror or run_mirror_url
            check_stays_in_bucket(
                context.options, Path(record["output"]), record["mirror"], chosen_url
            )
            new_recipe = found.recipe or edited_recipe(context, record)
            if new_recipe is not None and not context.options.restart:
                new_recipe = without_new_checkpoints(context, record, new_recipe)
            is_replaced = context.options.restart or _may_be_replaced(
                context,
                ledger,
                new_recipe,
                may_lose_files=found.names_recipe and chosen_url is None,
            )
            if is_replaced and found.names_recipe:
                chosen_url = context.options.mirror
                _note_kept_mirror(context, run_mirror_url)
            else:
                _inherit_options(context, record, run_mirror_url)
            mirror = context.open_mirror(chosen_url) if chosen_url else None
            if mirror is not None:
                mirror.set_noun_for(Path(record["output"]))
            recipe = check_recipe_drift(context, record, new_recipe, replaced=is_replaced)
            yield AdoptedRun(
                ledger,
                record,
                recipe,
                found.config or Path(record["config_path"]),
                names_recipe=found.names_recipe,
                mirror=mirror,
                mirror_named=is_mirror_named,
                restored=is_restored,
                replaced=is_replaced,
            )


def recipe_problems(context: RunContext, folder: Path, recipe: Recipe) -> list[Problem]:
    """Return the problems that keep `run` from continuing a run with this recipe; empty if none.

    Nothing is written.

    Args:
        context: the context of a command that only checks, with the options that `run` would be
            given.
        folder: the folder of the run's ledger, which is opened to be read only.
        recipe: the recipe that the command names.

    Raises:
        OSError, sqlite3.Error: the ledger cannot be read.
    """
    try:
        with closing(Ledger(folder / LEDGER_FILE, read_only=True)) as ledger:
            record = ledger.run()
            new_recipe = without_new_checkpoints(context, record, recipe)
            has_mirror = bool(context.options.mirror or record["mirror"])
            is_replaced = _may_be_replaced(
                context, ledger, new_recipe, may_lose_files=not has_mirror
            )
            check_recipe_drift(context, record, new_recipe, replaced=is_replaced)
    except InputError as error:
        return error.problems
    return []


def _may_be_replaced(
    context: RunContext, ledger: Ledger, wanted: Recipe | None, *, may_lose_files: bool
) -> bool:
    """Return whether a new run may replace one of another recipe, because no work would be lost."""
    record = ledger.run()
    return _is_another(context, record, wanted) and (
        _has_committed_nothing(ledger) or (may_lose_files and _has_no_file(ledger, record))
    )


def _is_another(context: RunContext, record: Mapping[str, Any], wanted: Recipe | None) -> bool:
    """Return whether the command's recipe, or a planning option, differs from the run's."""
    if wanted is not None and not is_of_recipe(record, wanted):
        return True
    return context.options.plans_otherwise(json.loads(record["options"]))


def _has_committed_nothing(ledger: Ledger) -> bool:
    """Return whether a run has neither a committed block nor a file in a mirror."""
    return not ledger.units.committed_blocks() and not ledger.mirrored.checksums()


def _has_no_file(ledger: Ledger, record: Mapping[str, Any]) -> bool:
    """Return whether none of a run's files exists in its output."""
    folder = OutputPath(Path(record["output"])).folder
    names = [name + suffix for name in ledger.written_names() for suffix in ("", PARTIAL)]
    return not any(os.path.lexists(folder / name) for name in names)


def replace_run(context: RunContext, run: AdoptedRun) -> NewRun:
    """Return a new run that replaces an adopted run, on this machine and in its mirror."""
    ledger, out, mirror = run.ledger, run.out, run.mirror

    def abandon() -> None:
        if mirror is not None:
            files_in_mirror = find_written(mirror, run.folder.name, mirrored_files(ledger))
            abandon_mirror(mirror, files_in_mirror)
        context.storage.make_folder(out.folder)
        with output_lock(out):
            abandon_output(ledger, run.folder, out.folder, context.storage)

    created_with = {} if run.names_recipe else json.loads(run.record["options"])
    written_names = written_files(ledger, out.folder)
    return NewRun(run.recipe, run.config, out, written_names, abandon, created_with)


def plan_adopted(context: RunContext, run: AdoptedRun) -> tuple[Plan, Estimate]:
    """Plan and estimate a run again, from its pinned sources.

    Raises:
        InputError: the sources are invalid, or the mirror is inside a source.
        Resumable: a source cannot be opened now.
    """
    pins = pins_of(run.ledger, reopen_local=run.names_recipe)
    try:
        created_with = json.loads(run.record["options"])
        ranks = ranks_of(run.ledger, run.recipe)
        plan, estimate = pinned_plan(context, run.recipe, run.out, pins, created_with, ranks)
    except SourcesUnavailable as error:
        raise unavailable(error) from error
    folder = run.mirror.store.local_folder if run.mirror is not None else None
    if folder is not None and (problems := check_outside(folder, source_folders(plan), "mirror")):
        raise InputError(problems)
    return plan, estimate


def _inherit_options(
    context: RunContext, record: Mapping[str, Any], mirror_url: str | None
) -> None:
    """Set the options that the command leaves out to the run's values.

    Args:
        context: the context whose `options` are replaced by the completed ones.
        record: the run's row in its ledger.
        mirror_url: the address of the run's mirror; None without a mirror.
    """
    if problems := check_has_mirror(context.options, context.options.mirror or mirror_url):
        raise InputError(problems)
    context.options = context.options.inherit(json.loads(record["options"]), mirror_url)


def _note_kept_mirror(context: RunContext, mirror_url: str | None) -> None:
    """Tell the user that the mirror of a replaced run is kept, if the command names no mirror."""
    if mirror_url is not None and context.options.mirror is None:
        context.reporter.note(
            f"The run that is abandoned had a mirror, {mirror_url}, which stays as it is. The new "
            "run has none: to replace the one there, name that mirror with --mirror."
        )


def keep_options(context: RunContext, run: AdoptedRun) -> None:
    """Store the command's options in the run's ledger, for later attempts."""
    options_before = json.loads(run.record["options"])
    options_now = context.options.kept_after_resume(options_before)
    if options_now != options_before:
        run.ledger.set_options(options_now)


def _check_same_output(record: Mapping[str, Any], output: Path | None) -> None:
    if output is not None and os.path.realpath(output) != os.path.realpath(record["output"]):
        raise refuse(
            "This run has another output on this machine",
            where=str(output),
            found=output_as_named(record["output"], record["mirror"]),
            fix="name that one, or leave --output out",
        )
