"""The folder of one person, with the actions that the person may take in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock, RLock
from typing import Any

from resumerge.engine.resources.lock import lock_holder
from resumerge.errors import InputError, Problem, refuse
from resumerge.hub.search import models_with
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.names import MANIFEST_FILE
from resumerge.mirror.stores.base import METADATA
from resumerge.options import Option, Options
from resumerge.ui.web.settings import settings, words_of
from resumerge.ui.web.space.environment import environment_of
from resumerge.ui.web.space.limits import Limits, bytes_below
from resumerge.ui.web.workspace import NO_OPTIONS, RECIPES, STATE, Began, Lines, Workspace

FIXED = ("mirror", "stream", "offline", "evict", "bring_back", "device", "link")
"""The options that a person cannot set: a Space mirrors every merge, and stores no models."""


def declared_for_people() -> list[Option]:
    """Return the declarations of the options that a person may set."""
    return settings(FIXED)


STARTING = RLock()
"""The lock of starts of merges. Without it, two starts at once would not count each other."""


@dataclass
class Desk:
    """The state that all open pages of one person share.

    Args:
        lock: held while `busy` is read and set.
        busy: whether a comparison or a push is in progress.
    """

    lock: Any = field(default_factory=Lock)
    busy: bool = False


class PersonalFolder(Workspace):
    """The folder of a person, whose merges are within limits and have a mirror.

    Args:
        folder: the person's own folder, which exists and has the name of their identity.
        name: the person's name on the Hub, the owner of the mirrors.
        token: the person's token for the Hub.
        limits: the limits of the person's use.
        desk: the state that the person's pages share.
    """

    def __init__(self, folder: Path, name: str, token: str, limits: Limits, desk: Desk) -> None:
        super().__init__(folder, environment_of(folder, token, os.environ), token)
        self._name, self._limits, self._desk = name, limits, desk

    def plan(self, text: str, name: str, options: Options = NO_OPTIONS) -> dict[str, Any]:
        """Return the plan of `Workspace.plan`, with a problem for each exceeded limit."""
        document = super().plan(text, name, self._fixed(name, options))
        used_bytes, running_ids = bytes_below(self.folder), self._running()
        limit_problems = self._limits.problems(document, used_bytes, running_ids, self._others())
        document["problems"] += map(asdict, limit_problems)
        return document

    def merge(self, text: str, name: str, options: Options = NO_OPTIONS) -> str:
        """Start a merge as `Workspace.merge` does, with a mirror ``hf://PERSON/NAME``.

        Raises:
            InputError: as for `Workspace.merge`; or the plan has problems, or exceeds the limits.
            Resumable: as for `Workspace.merge`.
        """
        with STARTING:
            self._output(name)
            if problems := self.plan(text, name, options)["problems"]:
                raise InputError([Problem(**problem) for problem in problems])
            return super().merge(text, name, self._fixed(name, options))

    def resume(self, run: str, options: Options = NO_OPTIONS) -> None:
        """Resume a run as `Workspace.resume` does.

        Raises:
            InputError: as for `Workspace.resume`; or too many merges are in progress.
            Resumable: as for `Workspace.resume`.
        """
        with STARTING:
            self._check_number()
            super().resume(run, self._within(options))

    def mirrors(self) -> list[str]:
        """Return the names of the person's repos with an unfinished run that has no ledger here.

        Raises:
            InputError: the network is off, or the Hub refuses.
            Resumable: the Hub cannot be reached.
        """
        repos = models_with(f"{METADATA}/", MANIFEST_FILE, self._name, self._token)
        names = [repo.split("/")[-1] for repo in repos]
        return [name for name in names if not self.runs.of_output(self.folder / name)]

    def resume_from_mirror(self, name: str, options: Options = NO_OPTIONS) -> str:
        """Resume a run of another machine from its mirror, and return its id.

        Args:
            name: the name of the mirror, a repo of the person's, and of the output here.
            options: the options to resume with.

        Raises:
            InputError, Resumable: as for `resume`.
        """
        output = self._output(name)
        words = words_of(self._within(options), "resume")
        with STARTING:
            self._check_number()
            mirror = f"hf://{self._name}/{name}"
            self._commands.detach("resume", *words, "--output", name, "--", mirror)
        return self.runs.of_output(output)[-1].name

    def remove(self, run: str) -> None:
        """Remove a run that is not in progress, with its output and recipe. Its mirror stays.

        Raises:
            InputError: there is no such run here, or it is in progress.
        """
        output = self._output(self.output_of(run).name)
        with STARTING:
            if run in self._running():
                raise refuse("This run is at work", where=run, fix="stop it first")
            self._commands.document("clean", "--yes", "--", run)
            shutil.rmtree(output, ignore_errors=True)
            (self.folder / RECIPES / f"{output.name}.yaml").unlink(missing_ok=True)

    def compare(self, models: Sequence[str], base: str, began: Began) -> Lines:
        """Compare as `Workspace.compare` does. A person has one comparison or push at a time."""
        return self._alone(super().compare(models, base, began))

    def push(self, run: str, repo: str, began: Began) -> Lines:
        """Push as `Workspace.push` does. A person has one comparison or push at a time."""
        return self._alone(super().push(run, repo, began))

    def _alone(self, lines: Lines) -> Iterator[str | dict[str, Any]]:
        with self._desk.lock:
            if self._desk.busy:
                raise refuse("A comparison or a push of yours is under way", fix="stop it first")
            self._desk.busy = True
        try:
            yield from lines
        finally:
            self._desk.busy = False

    def _fixed(self, name: str, options: Options) -> Options:
        mirror = f"hf://{self._name}/{name or 'unnamed'}"
        return replace(self._within(options), mirror=mirror, stream=True)

    def _within(self, options: Options) -> Options:
        """Return a copy of options whose memory is within the limits."""
        return replace(options, memory=min(options.memory or 1 << 62, self._limits.memory))

    def _check_number(self) -> None:
        if problems := [*self._limits.too_many(self._running(), self._others())]:
            raise InputError(problems)

    def _running(self) -> list[str]:
        return [run["id"] for run in self.all_runs() if run["state"] == "running"]

    def _others(self) -> int:
        """Return the number of other people's runs in progress."""
        states = self.folder.parent.glob(f"*/{STATE}")
        stores = [RunStore(state) for state in states if state.parent != self.folder]
        return sum(lock_holder(run) is not None for store in stores for run in store.runs())
