"""The folder of one person, with the actions that are allowed in it."""

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
"""Options that are not a person's choice: a Space mirrors every merge, and stores no model."""


def declared_for_people() -> list[Option]:
    """Return the options that are a person's choice."""
    return settings(FIXED)


STARTING = RLock()
"""Held while a merge of any person is started, so that two starts do not both count the others."""


@dataclass
class Desk:
    """What the pages of one person share, however many are open.

    Args:
        lock: held while `busy` is read and set.
        busy: whether a comparison or a push is under way.
    """

    lock: Any = field(default_factory=Lock)
    busy: bool = False


class PersonalFolder(Workspace):
    """The folder of a person, whose merges are within limits and have a mirror.

    Args:
        folder: the person's folder.
        name: the person's name on the Hub, under which the mirrors are.
        token: the person's token.
        limits: the limits of the person's use.
        desk: what the person's pages share.
    """

    def __init__(self, folder: Path, name: str, token: str, limits: Limits, desk: Desk) -> None:
        super().__init__(folder, environment_of(folder, token, os.environ), token)
        self._name, self._limits, self._desk = name, limits, desk

    def plan(self, text: str, name: str, options: Options = NO_OPTIONS) -> dict[str, Any]:
        """Return the plan of `Workspace.plan`, among whose problems are those of the limits."""
        document = super().plan(text, name, self._fixed(name, options))
        used, running = bytes_below(self.folder), self._running()
        over = self._limits.problems(document, used, running, self._others())
        document["problems"] += map(asdict, over)
        return document

    def merge(self, text: str, name: str, options: Options = NO_OPTIONS) -> str:
        """Start a merge as `Workspace.merge` does, with a mirror ``hf://PERSON/NAME``.

        Raises:
            InputError, Resumable: as there; or the limits forbid it.
        """
        with STARTING:
            self._output(name)
            if problems := self.plan(text, name, options)["problems"]:
                raise InputError([Problem(**problem) for problem in problems])
            return super().merge(text, name, self._fixed(name, options))

    def resume(self, run: str, options: Options = NO_OPTIONS) -> None:
        """Resume a run as `Workspace.resume` does.

        Raises:
            InputError, Resumable: as there; or the limits forbid it.
        """
        with STARTING:
            self._check_number()
            super().resume(run, self._within(options))

    def mirrors(self) -> list[str]:
        """Return the names of the person's repos with an unfinished run that is not here.

        Raises:
            InputError: the network is off, or the Hub refuses.
            Resumable: the Hub cannot be reached.
        """
        found = models_with(f"{METADATA}/", MANIFEST_FILE, self._name, self._token)
        names = [repo.split("/")[-1] for repo in found]
        return [name for name in names if not self.runs.of_output(self.folder / name)]

    def go_on(self, name: str, options: Options = NO_OPTIONS) -> str:
        """Resume a run of another machine from its mirror, and return its id.

        Args:
            name: of the mirror, a repo of the person's, and of the output here.
            options: those that it goes on with.

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
        """Remove a run that does not work, its output and its recipe. Its mirror stays.

        Raises:
            InputError: there is no such run here, or it works.
        """
        output = self._output(self.output_of(run).name)
        with STARTING:
            if run in self._running():
                raise refuse("This run is at work", where=run, fix="stop it first")
            self._commands.document("clean", "--yes", "--", run)
            shutil.rmtree(output, ignore_errors=True)
            (self.folder / RECIPES / f"{output.name}.yaml").unlink(missing_ok=True)

    def compare(self, models: Sequence[str], base: str, began: Began) -> Lines:
        """Compare as `Workspace.compare` does, one comparison or push at a time."""
        return self._alone(super().compare(models, base, began))

    def push(self, run: str, repo: str, began: Began) -> Lines:
        """Push as `Workspace.push` does, one comparison or push at a time."""
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
        """Return options whose memory is within the limits."""
        return replace(options, memory=min(options.memory or 1 << 62, self._limits.memory))

    def _check_number(self) -> None:
        if problems := [*self._limits.too_many(self._running(), self._others())]:
            raise InputError(problems)

    def _running(self) -> list[str]:
        return [run["id"] for run in self.all_runs() if run["state"] == "running"]

    def _others(self) -> int:
        """Return how many runs of other people work."""
        states = self.folder.parent.glob(f"*/{STATE}")
        stores = [RunStore(state) for state in states if state.parent != self.folder]
        return sum(lock_holder(run) is not None for store in stores for run in store.runs())
