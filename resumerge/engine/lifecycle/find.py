"""Find the run that a command works on: a run of this machine, a run in a mirror, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumerge.engine.checks.paths import STATE, check_output_path, check_path
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.import_run import find_in_mirror, output_option
from resumerge.engine.mirror_session.abandon import abandon_mirror, find_written
from resumerge.engine.mirror_session.checks import check_apart, check_reachable
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.recovery.swept_model import SweptModel
from resumerge.errors import InputError, refuse
from resumerge.ledger.run_store import state_of
from resumerge.mirror.manifest import Manifest
from resumerge.mirror.stores.registry import is_mirror_url, normalise, open_store
from resumerge.output_path import OutputPath
from resumerge.planning import read_recipe
from resumerge.recipe import Recipe


@dataclass(frozen=True)
class NewRun:
    """A run to be created.

    Args:
        config: the path of the recipe's file, which the ledger records.
        replaced: names of the files in the output's folder that `abandon` deletes.
        abandon: deletes the run that this run replaces, with its files.
        created_with: options of the run that this run replaces. This run is planned with them.
            Empty if the command names a recipe.
        pins: the `revision` of each model that is pinned already, by the text of its reference.
        swept: the finished model of a sweep, which this run takes over; None to compute the model.
    """

    recipe: Recipe
    config: Path
    out: OutputPath
    replaced: Collection[str] = ()
    abandon: Callable[[], None] = lambda: None
    created_with: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    swept: SweptModel | None = None


@dataclass(frozen=True)
class ExistingRun:
    """A run with a ledger on this machine.

    Args:
        folder: the folder of the run's ledger, named by the run's id.
        recipe: the recipe that the command names; None to use the run's own.
        config: the recipe's file; None to use the run's own.
        out: the output that the command names, for a run that was imported from its mirror; None to
            use the run's own.
    """

    folder: Path
    recipe: Recipe | None = None
    config: Path | None = None
    out: OutputPath | None = None

    @property
    def names_recipe(self) -> bool:
        """Whether the command names a recipe: `run` does, `resume` does not."""
        return self.recipe is not None


@dataclass(frozen=True)
class FinishedInMirror:
    """A finished model in a mirror, made by a run that this machine does not have.

    Args:
        recipe: the recipe that the model must be made of; None to accept any recipe.
        out: the output on this machine, where ``--bring-back`` copies the model; None if there is
            none.
    """

    manifest: Manifest
    recipe: Recipe | None
    out: OutputPath | None


Found = NewRun | ExistingRun | FinishedInMirror


def find_for_run(context: RunContext, config: Path, out: OutputPath) -> Found:
    """Return the run that ``resumerge run CONFIG OUT`` creates, resumes or reports as done.

    Raises:
        InputError: a path cannot be used, or the recipe is invalid.
        Resumable: the mirror cannot be reached.
    """
    problems = [
        *check_path(context.runs.folder, STATE),
        *check_path(config.absolute().parent, "recipe's folder"),
        *check_output_path(out),
    ]
    if problems:
        raise InputError(problems)
    recipe = read_recipe(config)
    if earlier_runs := context.runs.of_output(out.path):
        return ExistingRun(earlier_runs[-1], recipe, config)
    if context.options.mirror is None:
        return NewRun(recipe, config, out)
    mirror = context.open_mirror(context.options.mirror)
    mirror.set_noun_for(out.path)
    _check_usable(mirror, out)
    run_in_mirror = find_in_mirror(context, mirror, recipe, out)
    if isinstance(run_in_mirror, Path):
        return ExistingRun(run_in_mirror, recipe, config, out)
    if run_in_mirror is None:
        return NewRun(recipe, config, out)
    if context.options.restart:
        manifest = run_in_mirror
        return NewRun(recipe, config, out, abandon=lambda: _abandon_finished(mirror, manifest))
    return FinishedInMirror(run_in_mirror, recipe, out)


def find_for_resume(context: RunContext, name: str | None) -> Found:
    """Return the run that ``resumerge resume [RUN]`` resumes or reports as done.

    Args:
        context: its options `restart`, `mirror`, `bring_back` and `output` take part in the choice.
        name: a run's id, output or mirror; None for the newest run.

    Raises:
        InputError: there is no such run; or ``--restart`` was given without a name, and the newest
            run is done.
        Resumable: the mirror cannot be reached.
    """
    if name is None or not is_mirror_url(name):
        folder = context.runs.find(name)
        if name is None and context.options.restart and state_of(folder) == "done":
            raise refuse(
                "The newest run is done: there is nothing to start over",
                where=folder.name,
                expected="an unfinished run, or the name of a run",
                found="no name",
                fix=f"to make this model again, name the run: `resumerge resume {folder.name} "
                "--restart`",
            )
        return ExistingRun(folder)
    runs_here = context.runs.of_address(normalise(name))
    if runs_here and not context.options.bring_back:
        return ExistingRun(runs_here[-1])
    mirror = context.open_mirror(name)
    mirror_option = context.options.mirror
    if mirror_option is not None and open_store(mirror_option).url != mirror.url:
        raise refuse(
            "A run that is resumed from a mirror keeps that mirror",
            where=mirror.url,
            found=f"--mirror {mirror_option}",
            fix="leave --mirror out; to change the mirror, resume the run by its id on the "
            "machine that has its ledger",
        )
    _check_usable(mirror)
    run_in_mirror = find_in_mirror(context, mirror)
    if isinstance(run_in_mirror, Path):
        return ExistingRun(run_in_mirror)
    assert run_in_mirror is not None
    return FinishedInMirror(run_in_mirror, None, output_option(context.options))


def _check_usable(mirror: MirrorSession, out: OutputPath | None = None) -> None:
    if problems := check_reachable(mirror):
        raise InputError([*(check_apart(out, mirror) if out is not None else ()), *problems])


def _abandon_finished(mirror: MirrorSession, manifest: Manifest) -> None:
    abandon_mirror(mirror, find_written(mirror, manifest.run, manifest.files))
