"""`run` and `resume`: the commands that merge."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.find import find_for_resume, find_for_run
from resumerge.engine.lifecycle.pipeline import run_pipeline
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.reporter import Reporter, Result
from resumerge.engine.resources.signals import StopRequest
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.planning import Plan
from resumerge.recipe import Recipe
from resumerge.storage import Storage


class Session:
    """A session that carries out one command on one run.

    Args:
        options: the command's options.
        reporter: shows progress.
        storage: the operations on files.
        stop: whether a signal asks to stop.
        memory_limit: bytes; overrules the options for this command.
    """

    def __init__(
        self,
        options: Options,
        reporter: Reporter | None = None,
        storage: Storage | None = None,
        stop: StopRequest | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._context = RunContext(
            options,
            reporter or Reporter(),
            storage or Storage(),
            stop or StopRequest(),
            RunStore(options.state_dir),
            memory_limit,
        )

    @property
    def run_id(self) -> str | None:
        """The run's id, which says how to resume it; None as long as there is no run."""
        return self._context.run_id

    @property
    def has_had_lease(self) -> bool:
        """Whether this command has acquired the lease of the run's mirror."""
        mirror = self._context.mirror
        return mirror is not None and mirror.has_had_lease

    def run(self, config: Path, out: Path) -> Result:
        """Merge; resume the run that `out` has, if it is an unfinished run of the same recipe.

        Raises:
            InputError: recipe, sources or output are invalid; nothing was written.
            Interrupted: a signal stopped the run.
            Resumable: the run cannot go on now.
        """
        output = OutputPath(out.absolute())
        with self._context.working():
            return run_pipeline(self._context, find_for_run(self._context, config, output))

    def resume(self, name: str | None = None) -> Result:
        """Resume a run, named by its id, output or mirror; by default the newest.

        Raises:
            InputError: no such run, or recipe or sources changed.
            Interrupted: a signal stopped the run.
            Resumable: the run cannot go on now.
        """
        with self._context.working():
            return run_pipeline(self._context, find_for_resume(self._context, name))

    def plan(self, recipe: Recipe) -> Plan:
        """Plan a new run of a recipe; nothing is written.

        Raises:
            InputError: with every problem that was found.
        """
        return pinned_plan(self._context, recipe)[0]
