"""The contract of a kind of case, and commands that several kinds call."""

from __future__ import annotations

from pathlib import Path
from random import Random

QUIETLY = ("--memory-wait", "0", "--offline")
MERGE = (*QUIETLY, "--no-supervise")
Commands = list[list[str]]


class Kind:
    """A kind of files: the files before a change, the change, and the commands after it."""

    def make(self, work: Path) -> None:
        """Make all files in an empty folder, which is the working folder."""
        raise NotImplementedError

    def change(self, draw: Random, work: Path) -> Path:
        """Change or replace a file, and return its path."""
        raise NotImplementedError

    def commands(self, draw: Random) -> Commands:
        """Return the commands to call."""
        raise NotImplementedError


def merges(draw: Random, recipe: str) -> Commands:
    """Return commands that begin with a recipe."""
    as_json = ["--json"] * (draw.random() < 0.3)
    plan = ["plan", recipe, "out", "--offline", *as_json]
    run = ["run", recipe, "out", *MERGE, *as_json]
    return draw.choice(([plan], [run], [plan, run], [run, ["verify", "out"]]))


def continues(draw: Random, run: str) -> Commands:
    """Return commands on an existing run."""
    status = ["status", *draw.choice(([run], [], [run, "--json"], [run, "--html", "page.html"]))]
    resume, verify = ["resume", run, *MERGE], ["verify", run]
    return draw.choice(([status], [verify], [resume], [resume, status], [status, resume, verify]))
