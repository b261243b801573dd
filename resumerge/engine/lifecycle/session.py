"""`run` and `resume`: find the run that is meant, or begin one, and work on it."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.checks.preflight import OUTPUT, STATE, check_output, check_path
from resumerge.engine.execute.reporter import Reporter, Result
from resumerge.engine.lifecycle.context import RunContext
from resumerge.engine.lifecycle.finished import already_there
from resumerge.engine.lifecycle.import_run import RunImporter, brought, is_made_of
from resumerge.engine.lifecycle.resume import resume_run
from resumerge.engine.lifecycle.start import start_run
from resumerge.engine.mirrored.abandon import abandon_mirror, find_written
from resumerge.engine.mirrored.mirror_session import (
    MirrorSession,
    check_apart,
    check_reachable,
    refuse_mirror,
)
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Problem, refuse
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.manifest import Manifest
from resumerge.mirror.state import FINISHED, MirrorState
from resumerge.mirror.stores.registry import is_mirror_url, open_store
from resumerge.options import Options
from resumerge.planning import Plan, read_recipe
from resumerge.recipe import Recipe
from resumerge.storage import Storage


class Session:
    """Carries out one command on one run.

    A session knows the run's id as soon as there is one, so that whoever called can say how to
    resume.
    """

    def __init__(
        self,
        options: Options,
        reporter: Reporter | None = None,
        storage: Storage | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        self._command = RunContext(
            options,
            reporter or Reporter(),
            storage or Storage(),
            stop or StopRequest(),
            RunStore(options.state_dir),
        )

    @property
    def run_id(self) -> str | None:
        """The run's id; None as long as there is none."""
        return self._command.run_id

    def run(self, config: Path, out: Path) -> Result:
        """Merge; go on where `out` has an unfinished run of the same recipe.

        Raises:
            InputError: recipe, sources or output are unfit; nothing was written.
            Interrupted, Resumable: stopped short.
        """
        command = self._command
        with command.working():
            out = out.absolute()
            if problems := self._unusable(config, out):
                raise InputError(problems)
            recipe = read_recipe(config)
            earlier = command.home.of_output(out)
            if earlier:
                return resume_run(command, earlier[-1], recipe, config)
            if command.options.mirror is not None:
                far = command.reach(command.options.mirror)
                return self._from_mirror(far, recipe, config, out)
            return start_run(command, recipe, config, out)

    def _unusable(self, config: Path, out: Path) -> list[Problem]:
        return [
            *check_path(self._command.home.folder, STATE),
            *check_path(config.absolute().parent, "recipe's folder"),
            *check_path(out, OUTPUT),
        ]

    def resume(self, wanted: str | None = None) -> Result:
        """Go on with a run named by its id, output folder or mirror; by default the newest.

        Raises:
            InputError: no such run, or recipe or sources changed.
            Interrupted, Resumable: stopped short.
        """
        command = self._command
        with command.working():
            if wanted is not None and is_mirror_url(wanted):
                far = command.reach(wanted)
                asked = command.options.mirror
                if asked is not None and open_store(asked).url != far.url:
                    raise refuse(
                        "A run comes from one mirror, and keeps it",
                        where=far.url,
                        found=f"--mirror {asked}",
                        fix="leave one of them out; once it is here, it can be given another one",
                    )
                return self._from_mirror(far)
            return resume_run(command, command.home.find(wanted))

    def plan(self, recipe: Recipe) -> Plan:
        """Plan a new run of a recipe; nothing is written.

        Raises:
            InputError: with every problem that was found.
        """
        return self._command.plan(recipe, {}, {})

    def _from_mirror(
        self,
        far: MirrorSession,
        recipe: Recipe | None = None,
        config: Path | None = None,
        out: Path | None = None,
    ) -> Result:
        """Do what there is to do with what a mirror holds, which may be nothing.

        Args:
            recipe, config, out: of `run`.
        """
        if problems := check_reachable(far):
            raise InputError([*(check_apart(out, far) if out is not None else ()), *problems])
        command = self._command
        options = command.options
        arrival = RunImporter(far, command.home, options, command.storage, command.reporter)
        found = arrival.find(recipe, out)
        if isinstance(found, Path):
            return resume_run(command, found, recipe, config, out)
        if found is not None and not (options.restart and recipe):
            return self._finished_there(far, found, recipe, out or options.output)
        assert recipe is not None and config is not None and out is not None
        if found is None:
            return start_run(command, recipe, config, out)
        given_up = found

        def give_up_there() -> None:
            abandon_mirror(far, find_written(far, given_up.run, given_up.files))

        return start_run(command, recipe, config, out, before=give_up_there)

    def _finished_there(
        self, far: MirrorSession, done: Manifest, recipe: Recipe | None, out: Path | None
    ) -> Result:
        """A model that is finished in a mirror, by a run that this machine does not have."""
        command = self._command
        options = command.options
        if recipe is not None and not is_made_of(done, recipe, options, far):
            raise refuse_mirror(far, MirrorState(FINISHED, {}, done))
        if options.bring_back:
            out = out or Path.cwd() / (done.output or done.run)
            if problems := [*check_path(out, OUTPUT), *check_output(out, brought(done, out))]:
                raise InputError(problems)
        return already_there(far, done, out, options, command.storage, command.reporter)
