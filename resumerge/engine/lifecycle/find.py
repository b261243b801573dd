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
        config: the recipe's file.
        replaced: names of files in the output's folder that `abandon` deletes.
        abandon: deletes the run that this one replaces, and its files (``--restart``).
        created_with: if the command names no recipe, the options of the run that this one replaces;
            this run is planned with them, too.
        pins: `revision` of each model that is pinned already, by the text of its reference.
        swept: the model that a sweep has made, which is taken over; None to compute the model.
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
        folder: the folder of its ledger.
        recipe: the recipe that the command names; None to use the run's own.
        config: the recipe's file; None to use the run's own.
        out: the output that the command names for a run that was imported from its mirror.
    """

    folder: Path
    recipe: Recipe | None = None
    config: Path | None = None
    out: OutputPath | None = None

    @property
    def names_recipe(self) -> bool:
        """Whether the command names a recipe, as `run` does and `resume` does not."""
        return self.recipe is not None


@dataclass(frozen=True)
class FinishedInMirror:
    """A finished model in a mirror, made by a run that this machine does not have.

    Args:
        recipe: the recipe that the model must be made of; None if any is right.
        out: where the model is copied to if the user asks for that.
    """

    manifest: Manifest
    recipe: Recipe | None
    out: OutputPath | None


Found = NewRun | ExistingRun | FinishedInMirror


def find_for_run(context: RunContext, config: Path, out: OutputPath) -> Found:
    """Return the run that ``resumerge run CONFIG OUT`` begins, continues, or finds done.

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
    if earlier := context.runs.of_output(out.path):
        return ExistingRun(earlier[-1], recipe, config)
    if context.options.mirror is None:
        return NewRun(recipe, config, out)
    mirror = context.open_mirror(context.options.mirror)
    mirror.set_noun_for(out.path)
    _check_usable(mirror, out)
    in_mirror = find_in_mirror(context, mirror, recipe, out)
    if isinstance(in_mirror, Path):
        return ExistingRun(in_mirror, recipe, config, out)
    if in_mirror is None:
        return NewRun(recipe, config, out)
    if context.options.restart:
        manifest = in_mirror
        return NewRun(recipe, config, out, abandon=lambda: _abandon_finished(mirror, manifest))
    return FinishedInMirror(in_mirror, recipe, out)


def find_for_resume(context: RunContext, name: str | None) -> Found:
    """Return the run that ``resumerge resume [RUN]`` continues, or finds done.

    Args:
        context: the run's context.
        name: a run's id, output or mirror; None for the newest run.

    Raises:
        InputError: there is no such run; or a finished one is to start over and was not named.
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
    other = context.options.mirror
    if other is not None and open_store(other).url != mirror.url:
        raise refuse(
            "A run that is resumed from a mirror keeps that mirror",
            where=mirror.url,
            found=f"--mirror {other}",
            fix="leave --mirror out; to change the mirror, resume the run by its id on the "
            "machine that has its ledger",
        )
    _check_usable(mirror)
    found = find_in_mirror(context, mirror)
    if isinstance(found, Path):
        return ExistingRun(found)
    assert found is not None
    return FinishedInMirror(found, None, output_option(context.options))


def _check_usable(mirror: MirrorSession, out: OutputPath | None = None) -> None:
    if problems := check_reachable(mirror):
        raise InputError([*(check_apart(out, mirror) if out is not None else ()), *problems])


def _abandon_finished(mirror: MirrorSession, manifest: Manifest) -> None:
    abandon_mirror(mirror, find_written(mirror, manifest.run, manifest.files))
