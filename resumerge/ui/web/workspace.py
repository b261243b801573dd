"""What a page does in its folder: it plans, and has processes of the program merge."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resumerge.documents.plan_report import describe_plan
from resumerge.documents.recipe_file import recipe_of_text
from resumerge.documents.status import status_json
from resumerge.engine.resources.lock import lock_holder
from resumerge.errors import Problem, refuse
from resumerge.host.machine import hostname
from resumerge.ledger.run_store import RunStore, output_of
from resumerge.options import Options
from resumerge.storage import Storage
from resumerge.ui.web.background import start
from resumerge.ui.web.recipe_paths import RECIPE, check_paths

STATE, RECIPES = "state", "recipes"
"""The folders beside the outputs: of the ledgers, and of the recipes that were merged."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


class Workspace:
    """The folder of a page: its models, outputs, recipes and runs.

    Args:
        folder: the folder, which is the working folder of this process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.runs = RunStore(self.folder / STATE)

    def plan(self, text: str, name: str) -> dict[str, Any]:
        """Return the document of ``resumerge plan --json``, with the problems of a recipe.

        Only headers of the models are read; nothing is written.

        Args:
            text: the recipe.
            name: of the output; empty if it has none yet.

        Raises:
            InputError: the recipe names a path outside of the folder, or the name is invalid.
        """
        out = self._output(name) if name else None
        check_paths(text, self.folder)
        with recipe_of_text(text, RECIPE) as recipe:
            document = describe_plan(recipe.path, out, Options(state_dir=self.runs.folder), "none")
            problems = [recipe.placed(Problem(**problem)) for problem in document["problems"]]
            return {**document, "problems": list(map(asdict, problems))}

    def merge(self, text: str, name: str) -> str:
        """Start ``resumerge run``, which goes on when this process ends, and return the run's id.

        Args:
            text: the recipe, which is kept as ``recipes/NAME.yaml``.
            name: of the output.

        Raises:
            InputError: the recipe names a path outside of the folder, the name is invalid, or the
                command refused what it was to do; it wrote nothing.
            Resumable: the command stopped at once, for want of a model, memory, disk…
        """
        out = self._output(name)
        check_paths(text, self.folder)
        recipe = self.folder / RECIPES / f"{name}.yaml"
        Storage().make_folder(recipe.parent)
        Storage().write_file(recipe, text.encode("utf-8"))
        start(["run", f"{RECIPES}/{recipe.name}", name], self.folder, self.runs.folder)
        return self.runs.of_output(out)[-1].name

    def resume(self, run: str) -> None:
        """Start ``resumerge resume``.

        Raises:
            InputError: there is no such run here, or its output is elsewhere.
            Resumable: it stopped again at once.
        """
        folder = self._run(run)
        output = output_of(folder)
        if not Path(output).resolve().is_relative_to(self.folder):
            raise refuse(
                "This run writes outside of the page's folder",
                where=run,
                expected=f"an output below {self.folder}",
                found=output,
                fix=f"resume it by the command line: `resumerge resume {run}`",
            )
        start(["resume", run], self.folder, self.runs.folder)

    def stop(self, run: str) -> None:
        """Ask the process that works on a run to commit and stop, as Ctrl-C does.

        Raises:
            InputError: there is no such run here; or no process of this machine works on it.
        """
        holder = lock_holder(self._run(run)) or {}
        pid, host = holder.get("pid"), holder.get("host")
        if not isinstance(pid, int) or host != hostname():
            raise refuse(
                "No process of this machine works on this run",
                where=run,
                found=f"one on {host}" if host else "no process",
            )
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGINT)

    def status(self, run: str) -> dict[str, Any]:
        """Return a run as in ``resumerge status --json``.

        Raises:
            InputError: there is no such run here.
        """
        [found] = status_json(self.runs, self._run(run).name)["runs"]
        return dict(found)

    def all_runs(self) -> list[dict[str, Any]]:
        """Return the runs of ``resumerge status --json``, the newest first."""
        return list(status_json(self.runs, None)["runs"])

    def names(self) -> list[str]:
        """Return the ids of all runs, the newest first; no ledger is read but for its time."""
        return [folder.name for folder in reversed(self.runs.runs())]

    def _output(self, name: str) -> Path:
        """Return the path of an output, by its name.

        Raises:
            InputError: it is no name, or what has it leads out of the folder.
        """
        path = self.folder / name
        is_name = _NAME.fullmatch(name) and name not in (STATE, RECIPES)
        if not is_name or path.resolve().parent != self.folder:
            raise refuse(
                "This cannot be the name of the output",
                expected=f"the name of a folder in {self.folder}, which it does not lead out of: "
                "letters, digits, '.', '_' and '-', a letter or a digit first, and not "
                f"{STATE!r} or {RECIPES!r}",
                found=name or "nothing",
                fix="write a name, like my-merge",
            )
        return path

    def _run(self, run: str) -> Path:
        """Return the folder of a run, by its id alone: a path or an address names none here.

        Raises:
            InputError: there is no such run.
        """
        for folder in self.runs.runs():
            if folder.name == run:
                return folder
        raise refuse("There is no such run", where=self.runs.folder, found=run or "nothing")
