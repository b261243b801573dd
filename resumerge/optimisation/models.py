"""The models of a search: each is a run of its own, deleted if it is not among the best."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from pathlib import Path

from resumerge.backup_names import backup_name
from resumerge.engine.lifecycle.abandon_output import abandon_output
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.open_ledger import open_ledger
from resumerge.engine.recovery.swept_model import SweptModel
from resumerge.engine.reporter import Reporter, Result
from resumerge.engine.resources.lock import output_lock, run_lock
from resumerge.engine.resources.signals import StopRequest
from resumerge.ledger.run_store import RunStore
from resumerge.optimisation.state import TRIALS
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.recipe import Recipe
from resumerge.storage import Storage

MODEL, RECIPE = "model", "recipe.yaml"
BEST, BEST_RECIPE = "best", "best.yaml"


def variant(number: int) -> str:
    """Return the name of a trial's folder, and of its model in a sweep."""
    return f"{number:04}"


class TrialModels:
    """The models below the output of a search.

    Args:
        out: the output's folder, absolute.
        options: the options of each merge; their state folder contains the runs.
        storage: the operations on files.
        stop: whether a signal asks to stop.
    """

    def __init__(self, out: Path, options: Options, storage: Storage, stop: StopRequest) -> None:
        self._out, self._options, self._storage, self._stop = out, options, storage, stop
        self._runs = RunStore(options.state_dir)

    def folder(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self._out / TRIALS / variant(number)

    def model(self, number: int) -> Path:
        """Return the folder of a trial's model."""
        return self.folder(number) / MODEL

    def recipe(self, number: int) -> Path:
        """Return the file of a trial's recipe."""
        return self.folder(number) / RECIPE

    def merge(
        self, number: int, recipe: str, reporter: Reporter, swept: SweptModel | None = None
    ) -> Result:
        """Merge the model of a trial, or continue the merge that was interrupted.

        Args:
            number: the number of the trial, which decides the folder.
            recipe: the YAML text of its recipe, which is written to the folder first.
            reporter: receives the progress of the merge.
            swept: the model that a sweep has made, to take over; None to compute the model.

        Raises:
            InputError, Resumable, Interrupted: as for `resumerge.run`.
        """
        self._write(self.recipe(number), recipe)
        session = Session(self._options, reporter, self._storage, self._stop)
        return session.run(self.recipe(number), self.model(number), swept)

    def merge_together(
        self, batch: Collection[int], recipes: Mapping[int, str], sweep: str, reporter: Reporter
    ) -> None:
        """Merge the models of several trials in one run, then make each the model of its own run.

        Args:
            batch: the numbers of all trials of the batch; the least and the largest name the
                sweep's folder.
            recipes: the recipes of the merged trials, by the trials' numbers.
            sweep: the recipe of the sweep; `variant` names its variants.
            reporter: receives the progress of the merge.

        Raises:
            InputError, Resumable, Interrupted: as for `resumerge.run`.
        """
        folder = self._sweep(batch)
        if not any(map(self.is_kept, recipes)):  # else some were taken over already
            self._write(folder / RECIPE, sweep)
            session = Session(self._options, reporter, self._storage, self._stop)
            session.run(folder / RECIPE, folder / MODEL)
        runs = self._runs.of_output(folder / MODEL)
        for number, recipe in recipes.items():
            reporter.doing(f"a run for the model of trial {number}")
            swept_model = SweptModel(runs[-1], variant(number)) if runs else None
            self.merge(number, recipe, Reporter(), swept_model)
        self.delete_sweep(batch)

    def delete_sweep(self, batch: Collection[int]) -> None:
        """Delete the files that a sweep of a batch has left."""
        self._delete(self._sweep(batch) / MODEL)

    def _sweep(self, batch: Collection[int]) -> Path:
        return self._out / TRIALS / f"{variant(min(batch))}-{variant(max(batch))}"

    def plan(self, recipe: Recipe) -> None:
        """Check that a recipe can be merged; nothing is written.

        Raises:
            InputError, Resumable, Interrupted: as for `resumerge.plan`.
        """
        Session(self._options, Reporter(), self._storage, self._stop).plan(recipe)

    def is_kept(self, number: int) -> bool:
        """Return whether the model of a trial is kept."""
        return self.model(number).is_dir() and bool(self._runs.of_output(self.model(number)))

    def delete(self, number: int) -> None:
        """Delete a model and its ledger, except files that differ from those that the run wrote."""
        self._delete(self.model(number))

    def delete_all(self) -> None:
        """Delete every model, also those of a sweep that was interrupted."""
        for folder in sorted((self._out / TRIALS).glob("*")):
            self._delete(folder / MODEL)

    def _delete(self, model: Path) -> None:
        if not model.is_dir():
            return
        for folder in self._runs.of_output(model):
            with run_lock(folder, folder.name), output_lock(OutputPath(model)):
                ledger, _ = open_ledger(folder, self._storage)
                with closing(ledger):
                    abandon_output(ledger, folder, model, self._storage)
        with suppress(OSError):  # the folder has files of the user
            model.rmdir()

    def keep(self, numbers: list[int], tried: int) -> None:
        """Delete every model except those of some trials.

        Args:
            numbers: the numbers of the trials whose models stay.
            tried: the number of all trials so far.
        """
        for number in range(tried):
            if number not in numbers:
                self.delete(number)

    def name_best(self, number: int, recipe: str, *, kept: bool) -> None:
        """Write the best recipe to `BEST_RECIPE`, and make `BEST` a link to its model.

        Args:
            number: the number of the best trial.
            recipe: the YAML text of its recipe.
            kept: whether its model is kept; if it is not, the link to an earlier best model is
                removed.
        """
        self._write_best(recipe)
        link = self._out / BEST
        target = self.model(number).relative_to(self._out)
        is_ours = link.is_symlink() and link.readlink().parts[:1] == (TRIALS,)
        if is_ours and (not kept or link.readlink() != target):
            self._storage.remove(link)
        if kept and not link.is_symlink():
            with suppress(OSError):  # the name is taken, or there are no links
                self._storage.link(target, link)

    def _write_best(self, recipe: str) -> None:
        """Write the best recipe; an old file that the user edited gets a backup name."""
        path = self._out / BEST_RECIPE
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            if text == recipe:
                return
            trials = (self._out / TRIALS).glob(f"*/{RECIPE}")
            if all(text != file.read_text(encoding="utf-8", errors="replace") for file in trials):
                name = backup_name(path.name, lambda name: (self._out / name).exists())
                self._storage.rename(path, self._out / name)
        self._write(path, recipe)

    def _write(self, path: Path, text: str) -> None:
        self._storage.make_folder(path.parent)
        self._storage.write_file(path, text.encode())
