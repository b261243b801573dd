"""The commands that merge, `run`, `resume` and `reproduce`, and planning without a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.find import NewRun, find_for_resume, find_for_run
from resumerge.engine.lifecycle.phases import complete_run
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.recovery.swept_model import SweptModel
from resumerge.engine.reporter import Reporter, Result
from resumerge.engine.reproduction.comparison import (
    Reproduction,
    compare_with_original,
    refuse_itself,
)
from resumerge.engine.reproduction.original import open_original
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.output.model_files import RECIPE_IN_OUTPUT
from resumerge.output_path import OutputPath
from resumerge.planning import Plan
from resumerge.recipe import Recipe
from resumerge.storage import Storage


class Session:
    """The execution of one command on one run.

    Args:
        options: the options that the command names; those that it leaves out are taken from a run
            that is resumed.
        reporter: shows progress.
        storage: the operations on files.
        stop: records that a signal asks the process to stop.
        memory_limit: bytes of RSS that the process may use; overrides the options. None to use the
            options.
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
        """The run's id, by which it can be resumed; None until a run is found or created."""
        return self._context.run_id

    @property
    def has_had_lease(self) -> bool:
        """Whether this command has acquired the lease of the run's mirror."""
        mirror = self._context.mirror
        return mirror is not None and mirror.has_had_lease

    def run(self, config: Path, out: Path, swept: SweptModel | None = None) -> Result:
        """Merge; resume the run of `out` if it is an unfinished run of the same recipe.

        Args:
            config: the path of the recipe's file, of which the run keeps a copy.
            out: the model's path, a folder or a single file; a relative path is taken from the
                current folder.
            swept: the finished model of a sweep, which a new run takes over; None to compute the
                model.

        Raises:
            InputError: recipe, sources or output are invalid; nothing was written.
            Interrupted: a signal stopped the run.
            Resumable: the run cannot continue now.
        """
        output = OutputPath(out.absolute())
        with self._context.working():
            found_run = find_for_run(self._context, config, output)
            if isinstance(found_run, NewRun):
                found_run = replace(found_run, swept=swept)
            return complete_run(self._context, found_run)

    def resume(self, name: str | None = None) -> Result:
        """Resume a run, named by its id, output or mirror; by default the newest run.

        Raises:
            InputError: there is no such run, or its recipe or sources changed.
            Interrupted: a signal stopped the run.
            Resumable: the run cannot continue now.
        """
        with self._context.working():
            return complete_run(self._context, find_for_resume(self._context, name))

    def reproduce(self, named: str, out: Path) -> Result:
        """Make a model again from its card, or resume the run of `out` that already does.

        Args:
            named: the original model, in a form that `open_original` accepts.
            out: the path of the reproduction, a folder or a single file; it must not be the
                original's.

        Raises:
            InputError: the original's card does not name its recipe and models, these models are
                gone, or this machine would compute other numbers; nothing was written.
            Interrupted: a signal stopped the run.
            Resumable: the run cannot continue now.
        """
        context = self._context
        with context.working(), TemporaryFolder() as temporary_folder:
            original_model = open_original(named, context)
            refuse_itself(original_model, out)
            original_model.check_versions()
            context.options = original_model.options(context.options)
            config = temporary_folder / RECIPE_IN_OUTPUT
            config.write_text(original_model.recipe, encoding="utf-8")
            with original_model.naming_its_recipe(config):
                found_run = find_for_run(context, config, OutputPath(out.absolute()))
                if isinstance(found_run, NewRun):
                    found_run = replace(found_run, pins=original_model.pins)
                return complete_run(context, found_run)

    def compare_with_original(self, named: str, out: Path) -> Reproduction:
        """Compare an original model with its reproduction in `out`.

        Raises:
            InputError: there is no such run.
            Interrupted: a signal stopped the comparison.
            Resumable: a file of either model cannot be read now.
        """
        with self._context.working():
            original = open_original(named, self._context)
            return compare_with_original(self._context, original, out)

    def plan(self, recipe: Recipe) -> Plan:
        """Plan a new run of a recipe; nothing is written.

        Raises:
            InputError: the run would be refused; the error has every problem that was found.
        """
        return pinned_plan(self._context, recipe)[0]
