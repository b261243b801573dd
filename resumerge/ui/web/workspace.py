"""The actions of a page in its folder, as commands of the program."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resumerge.documents.recipe_file import recipe_of_text
from resumerge.documents.status import status_json
from resumerge.engine.resources.lock import lock_holder
from resumerge.errors import Problem, refuse
from resumerge.host.machine import hostname
from resumerge.hub.search import search_models
from resumerge.ledger.run_store import RunStore, output_of
from resumerge.options import Options
from resumerge.sources.formats.registry import is_readable
from resumerge.storage import Storage
from resumerge.ui.web.commands import Commands, Process
from resumerge.ui.web.recipe_paths import RECIPE, check_model_names, check_paths
from resumerge.ui.web.settings import words_of

STATE, RECIPES = "state", "recipes"
"""The folders beside the outputs, for the ledgers and for the recipes of merges."""

Began = Callable[[Process], None]
Lines = Iterator[str | dict[str, Any]]

_REPO = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
NO_OPTIONS = Options()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


class Workspace:
    """The folder of a page: its models, outputs, recipes and runs.

    Args:
        folder: an existing folder, which may be empty; a link is resolved.
        environment: the environment of the processes that work in the folder; None for the
            environment of this process.
        token: the token for searches of the Hub; None for the token of this process.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, token: str | None = None
    ) -> None:
        self.folder = folder.resolve()
        self.runs = RunStore(self.folder / STATE)
        self._commands = Commands(self.folder, self.runs.folder, environment)
        self._token = token

    def models(self) -> list[str]:
        """Return the names of the models in the folder: folders with weights, and weight files."""
        return sorted(
            path.name
            for path in self.folder.iterdir()
            if not path.name.startswith(".") and is_model(path)
        )

    def search(self, words: str) -> list[str]:
        """Return the names of models: those in the folder, then those on the Hub.

        Args:
            words: a part of the names. If it is empty, the Hub is not searched.

        Raises:
            InputError: the network is off, or the Hub refuses.
            Resumable: the Hub cannot be reached.
        """
        local_models = [name for name in self.models() if words.lower() in name.lower()]
        return local_models + (search_models(words, token=self._token) if words else [])

    def plan(self, text: str, name: str, options: Options = NO_OPTIONS) -> dict[str, Any]:
        """Return the document of ``resumerge plan --json``, with the problems of a recipe.

        Only the headers of the models are read. Nothing is written.

        Args:
            text: the recipe's YAML text.
            name: the name of the output; empty if it is not chosen yet.
            options: the options that the person set on the page.

        Raises:
            InputError: the recipe names a path outside of the folder, or the name is invalid.
        """
        output_words = [self._output(name).name] if name else []
        check_paths(text, self.folder)
        with recipe_of_text(text, RECIPE) as recipe:
            words = [*words_of(options, "plan"), "--", str(recipe.path), *output_words]
            document = self._commands.document("plan", *words)
            problems = [recipe.placed(Problem(**problem)) for problem in document["problems"]]
            return {**document, "problems": list(map(asdict, problems))}

    def merge(self, text: str, name: str, options: Options = NO_OPTIONS) -> str:
        """Start ``resumerge run``, and return the run's id. The run outlives this process.

        Args:
            text: the recipe's YAML text, which is stored as ``recipes/NAME.yaml``.
            name: the name of the output's folder; `NAME` of the recipe's file, too.
            options: the options that the person set on the page.

        Raises:
            InputError: the recipe names a path outside of the folder, the name is invalid, or the
                command refused the merge and wrote nothing.
            Resumable: the command stopped at once; for example, a model, memory or disk space is
                missing.
        """
        output_path = self._output(name)
        check_paths(text, self.folder)
        recipe = self.folder / RECIPES / f"{name}.yaml"
        Storage().make_folder(recipe.parent)
        Storage().write_file(recipe, text.encode("utf-8"))
        self._commands.detach(
            "run", *words_of(options, "run"), "--", f"{RECIPES}/{recipe.name}", name
        )
        return self.runs.of_output(output_path)[-1].name

    def resume(self, run: str, options: Options = NO_OPTIONS) -> None:
        """Start ``resumerge resume``.

        Args:
            run: the id of one of this folder's runs.
            options: the options to resume with. The run keeps most of its earlier options.

        Raises:
            InputError: there is no such run here, or its output is outside of the folder.
            Resumable: the run stopped again at once.
        """
        self.output_of(run)
        self._commands.detach("resume", *words_of(options, "resume"), "--", run)

    def output_of(self, run: str) -> Path:
        """Return the path of a run's output.

        Raises:
            InputError: there is no such run here, or its output is outside of the folder.
        """
        output = output_of(self._run(run))
        if not Path(output).resolve().is_relative_to(self.folder):
            raise refuse(
                "This run writes outside of the page's folder",
                where=run,
                expected=f"an output below {self.folder}",
                found=output,
                fix="resume or push it by the command line",
            )
        return Path(output)

    def compare(self, models: Sequence[str], base: str, began: Began) -> Lines:
        """Yield the lines of ``resumerge compare``, and then its document.

        The same call continues a stopped comparison.

        Args:
            models: the models, as a recipe names them.
            base: their base model; empty text without one.
            began: called with the process, which `ask_to_stop` stops.

        Raises:
            InputError: a model is outside of the folder, or the command refused the models.
            Resumable, Interrupted: the comparison stopped before its end.
        """
        check_model_names([*models, base], self.folder)
        base_words = ["--base", base] if base else []
        return self._commands.follow(["compare", *base_words, "--", *models], began)

    def push(self, run: str, repo: str, began: Began) -> Lines:
        """Yield the lines of ``resumerge push``, and then its document.

        A new repo is private.

        Args:
            run: the id of the run that made the model.
            repo: the repo on the Hub, ``org/name``.
            began: called with the process, which `ask_to_stop` stops.

        Raises:
            InputError: there is no such run here, its output is outside of the folder, `repo` is
                not the name of a repo, or the command refused the upload.
            Resumable, Interrupted: the upload stopped before its end.
        """
        output = self.output_of(run)
        if not _REPO.fullmatch(repo):
            raise refuse(
                "This cannot be the name of a repo",
                expected="a model repo on the Hub, like your-name/my-merge",
                found=repo or "nothing",
            )
        return self._commands.follow(["push", "--", str(output), repo], began)

    def stop(self, run: str) -> None:
        """Send SIGINT to the process that works on a run, so that it commits and stops.

        Raises:
            InputError: there is no such run here, or no process of this machine works on the run.
        """
        holder = lock_holder(self._run(run)) or {}
        pid, host = holder.get("pid"), holder.get("host")
        if not isinstance(pid, int) or host != hostname():
            raise refuse(
                "No process of this machine works on this run",
                where=run,
                found=f"one on {host}" if host else "no process",
            )
        with suppress(ProcessLookupError):  # the process has ended meanwhile
            os.kill(pid, signal.SIGINT)

    def status(self, run: str) -> dict[str, Any]:
        """Return the document of a run, as in ``resumerge status --json``.

        Raises:
            InputError: there is no such run here.
        """
        [document] = status_json(self.runs, self._run(run).name)["runs"]
        return dict(document)

    def all_runs(self) -> list[dict[str, Any]]:
        """Return the runs of ``resumerge status --json``, newest first."""
        return list(status_json(self.runs, None)["runs"])

    def names(self) -> list[str]:
        """Return the ids of all runs, newest first. Only the times of ledgers are read."""
        return [folder.name for folder in reversed(self.runs.runs())]

    def _output(self, name: str) -> Path:
        """Return the path of the output with a name.

        Raises:
            InputError: the name is invalid, or its path leads out of the folder.
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
        """Return the folder of the run with an id. Paths and addresses are not accepted.

        Raises:
            InputError: there is no such run.
        """
        for folder in self.runs.runs():
            if folder.name == run:
                return folder
        raise refuse("There is no such run", where=self.runs.folder, found=run or "nothing")


def is_model(path: Path) -> bool:
    """Return whether a path is a weight file, or a folder with one."""
    try:
        if path.is_dir():
            return any(is_readable(file.name) for file in path.iterdir())
        return is_readable(path.name)
    except OSError:
        return False
