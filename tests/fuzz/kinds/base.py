"""What a kind of case is, and commands that several of them call."""

from __future__ import annotations

from pathlib import Path
from random import Random

QUIETLY = ("--memory-wait", "0", "--offline")
MERGE = (*QUIETLY, "--no-supervise")
Commands = list[list[str]]


class Kind:
    """Files of one kind: what is there before, what is changed, and what is called then."""

    def make(self, work: Path) -> None:
        """Make everything in an empty folder, which is the working folder."""
        raise NotImplementedError

    def change(self, draw: Random, work: Path) -> Path:
        """Put something else in the place of a file, and return which."""
        raise NotImplementedError

    def commands(self, draw: Random) -> Commands:
        """The commands to call."""
        raise NotImplementedError


def merges(draw: Random, recipe: str) -> Commands:
    """Commands that begin with a recipe."""
    as_json = ["--json"] * (draw.random() < 0.3)
    plan = ["plan", recipe, "out", "--offline", *as_json]
    run = ["run", recipe, "out", *MERGE, *as_json]
    return draw.choice(([plan], [run], [plan, run], [run, ["verify", "out"]]))


def continues(draw: Random, run: str) -> Commands:
    """Commands about a run that is there."""
    status = ["status", *draw.choice(([run], [], [run, "--json"], [run, "--html", "page.html"]))]
    resume, verify = ["resume", run, *MERGE], ["verify", run]
    return draw.choice(([status], [verify], [resume], [resume, status], [status, resume, verify]))
