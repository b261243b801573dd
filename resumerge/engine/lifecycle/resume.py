"""A run of this machine: go on with it, say that it is done, or give it up for a new one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.engine.checks.drift_guard import DriftGuard
from resumerge.engine.checks.preflight import check_disk, check_outside
from resumerge.engine.execute.reporter import Result
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.lifecycle.abandon_output import abandon_output
from resumerge.engine.lifecycle.context import RunContext
from resumerge.engine.lifecycle.finished import already_there, bring_rest, is_whole
from resumerge.engine.lifecycle.open_models import SourcesUnavailable
from resumerge.engine.lifecycle.pinned_plan import pins_of
from resumerge.engine.lifecycle.start import start_run
from resumerge.engine.mirrored.abandon import abandon_mirror, find_written, mirrored_files
from resumerge.engine.mirrored.mirror_checks import check_has_mirror
from resumerge.engine.mirrored.mirror_session import MirrorSession, check_apart, check_reachable
from resumerge.engine.mirrored.reconcile import Reconciler, check_fits
from resumerge.engine.recovery.damage import find_damage
from resumerge.engine.recovery.ownership import written_files
from resumerge.engine.recovery.recovery import open_ledger
from resumerge.engine.resources.lock import folder_lock, run_lock
from resumerge.errors import InputError, Resumable, refuse
from resumerge.ledger import Ledger
from resumerge.planning import Plan
from resumerge.recipe import Recipe


def resume_run(
    command: RunContext,
    folder: Path,
    recipe: Recipe | None = None,
    config: Path | None = None,
    moved_to: Path | None = None,
) -> Result:
    """Go on with the run in a folder of the state folder, or start over.

    Args:
        recipe, config: of `run`; None where the run's own are gone on with.
        moved_to: its output folder, where the run has just come from a mirror.

    Raises:
        InputError: recipe or sources changed, or another process works on it.
        Interrupted, Resumable: stopped short.
    """
    command.run_id = folder.name
    with run_lock(folder, folder.name):
        ledger, restored = open_ledger(folder, command.storage)
        with closing(ledger):
            named = command.options.mirror is not None
            known = _KnownRun(command, ledger, moved_to)
            unchanged = DriftGuard(known.row, command.home, command.reporter)
            given = unchanged.recipe(recipe, restart=command.options.restart)
            known.reach()
            if command.options.restart:
                return known.start_over(given, config or Path(known.row["config_path"]), folder)
            plan = known.plan(given, looks_anew=recipe is not None)
            unchanged.check(plan, ledger)
            if known.is_done(plan):
                return known.say_done()
            return known.finish(plan, named=named, verify_all=restored)


class _KnownRun:
    """A run with its ledger, which is locked."""

    def __init__(self, command: RunContext, ledger: Ledger, moved_to: Path | None) -> None:
        """
        Raises:
            InputError: options that do not go with what the run is.
        """
        self._command, self._ledger = command, ledger
        self.row: dict[str, Any] = ledger.run() or {}
        self._out = Path(self.row["output"])
        self._began: Mapping[str, Any] = json.loads(self.row["options"])
        self._far: MirrorSession | None = None
        _check_stays(self._out, moved_to or command.options.output)
        mirror = command.far.url if command.far else self.row["mirror"]
        self._url: str | None = command.options.mirror or mirror
        if problems := check_has_mirror(command.options, self._url):
            raise InputError(problems)
        command.options = command.options.inherit(self._began, mirror)

    def reach(self) -> None:
        """Reach its mirror, if it has one."""
        self._far = self._command.reach(self._url) if self._url else None

    def plan(self, recipe: Recipe, *, looks_anew: bool) -> Plan:
        """Plan it again, with its sources as they are pinned.

        Raises:
            InputError: they are unfit.
            Resumable: what could be opened when the run began cannot be now.
        """
        pins = pins_of(self._ledger, looks_anew=looks_anew)
        try:
            plan = self._command.plan(recipe, pins, self._began)
        except SourcesUnavailable as error:
            raise Resumable("source_unavailable", str(error)) from error
        mirror = self._far.store.local_folder if self._far is not None else None
        if mirror is not None:
            folders = (source.folder for source in plan.sources)
            if problems := check_outside(mirror, folders, "mirror"):
                raise InputError(problems)
        return plan

    def start_over(self, recipe: Recipe, config: Path, folder: Path) -> Result:
        """Give it up, here and in its mirror, for a new one."""
        command, ledger, out, far = self._command, self._ledger, self._out, self._far
        written = written_files(ledger, out)

        def give_up_run() -> None:
            if far is not None:
                abandon_mirror(far, find_written(far, folder.name, mirrored_files(ledger)))
            command.storage.make_folder(out)
            with folder_lock(out):
                abandon_output(ledger, folder, out, command.storage)

        return start_run(command, recipe, config, out, written, give_up_run)

    def is_done(self, plan: Plan) -> bool:
        """Whether it is finished, and all of it is still there."""
        row = self._ledger.run() or {}
        far, files = self._far, ShardFiles(plan, self._out, self._command.storage)
        return (
            row["state"] == "done"
            and (far is None or far.url == row["mirror"])
            and is_whole(plan, self._ledger, files, far)
            and not find_damage(plan, self._ledger, self._command.metadata)
        )

    def say_done(self) -> Result:
        """Say so; what is in the mirror alone comes here if that is asked for."""
        if self._far is not None and self._command.options.bring_back:
            bring_rest(self._far, self._out, self._command.storage)
        url, path = self._far.url if self._far else None, self._ledger.path
        result = Result(path.parent.name, self._out, path, already_done=True, mirror=url)
        self._command.reporter.done(result)
        return result

    def finish(self, plan: Plan, *, named: bool, verify_all: bool) -> Result:
        """Bring ledger and mirror into agreement, and do what is left.

        Args:
            named: the user named the mirror just now.
            distrust: the ledger was restored, and not compared with the shards since.

        Raises:
            InputError, Interrupted, Resumable: as `go_on`.
        """
        command, out, far = self._command, self._out, self._far
        options, storage = command.options, command.storage
        away: list[str] = []
        if far is not None:
            if problems := check_apart(out, far):
                raise InputError(problems)
            if problems := check_reachable(far):
                raise InputError(problems) if named else Resumable("mirror", str(problems[0]))
            agreement = Reconciler(self._ledger, out, far, storage)
            done = agreement.reach(named=named)
            if done is not None:
                return already_there(far, done, out, options, storage, command.reporter)
            check_fits(plan, self._ledger)
            away = agreement.compare()
        if problems := check_disk(out, 0 if command.frees else self._lacking(plan, away)):
            raise Resumable("disk_full", str(problems[0]))
        means = command.means(plan, patience=options.memory_wait)
        storage.make_folder(out)
        with folder_lock(out):
            if far is not None and options.bring_back:
                agreement.bring_back(away)
            return command.work(plan, self._ledger, out, means, resumed=True, verify_all=verify_all)

    def _lacking(self, plan: Plan, away: list[str]) -> int:
        """Bytes that the shards which are to be here have yet to take."""
        files = ShardFiles(plan, self._out, self._command.storage)
        stay_away = () if self._command.options.bring_back else away
        return sum(files.lacking(shard) for shard in plan.shards if shard.name not in stay_away)


def _check_stays(out: Path, asked: Path | None) -> None:
    """A run's output stays where it is."""
    if asked is not None and os.path.realpath(asked) != os.path.realpath(out):
        raise refuse(
            "This run has its output elsewhere on this machine",
            where=str(asked),
            found=str(out),
            fix="name that one, or none",
        )
