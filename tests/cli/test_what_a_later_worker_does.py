"""Promise: a worker that follows a dead one continues its run with the user's options; what is done
once is not done again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from resumerge.cli.merging.merge_command import MergeCommand
from resumerge.engine.lifecycle.session import Session
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.options import Options
from resumerge.supervisor import HeartbeatPipe, WorkerSpec
from resumerge.ui.progress.styles import Style

Worked = tuple[Options, str | None]


class Command(MergeCommand):
    """A merge command that is its own session and records its calls, with the options."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, lambda session: session.run("recipe", "out"), style=Style.NONE)
        self.worked: list[Worked] = []

    def _new_session(self, *args: object) -> Any:
        return self

    def run(self, recipe: str, out: str) -> None:
        self.worked.append((self._options, None))

    def resume(self, run: str) -> None:
        self.worked.append((self._options, run))


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Callable[..., Worked]]:
    """Yield a function that runs a worker in a state folder with a ledger of `a-run`.

    The function returns the options of the worker, and the run that it resumed.
    """
    ends = os.pipe()

    def work(spec: WorkerSpec, recorded: str | None = None, **options: Any) -> Worked:
        folder = tmp_path / "state" / "a-run"
        folder.mkdir(parents=True)
        Ledger.create(folder / LEDGER_FILE).close()
        with closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger:
            required = [
                row[1]
                for row in ledger.execute("PRAGMA table_info(run)")
                if row[3] and row[1] not in ("id", "mirror")
            ]
            names = ", ".join(["id", "mirror", *required])
            values = ["a-run", recorded, *("1" for _ in required)]
            marks = ", ".join("?" for _ in values)
            ledger.execute(f"INSERT INTO run ({names}) VALUES ({marks})", values)
            ledger.commit()
        command = Command(Options(state_dir=tmp_path / "state", **options))
        assert command._worker(HeartbeatPipe(ends[1]), spec) == 0
        [worked] = command.worked
        return replace(worked[0], state_dir=None), worked[1]

    yield work
    for end in ends:
        os.close(end)


def test_the_first_one_does_what_the_command_says(works: Callable[..., Worked]) -> None:
    given: dict[str, Any] = {"restart": True, "take_over": True, "threads": 3}
    assert works(WorkerSpec(), **given) == (Options(**given), None)


def test_a_later_one_resumes_the_run_and_starts_nothing_over(works: Callable[..., Worked]) -> None:
    once = {"restart": True, "take_over": True}
    given: dict[str, Any] = {"evict": True, "no_recheck": True, "mirror_rate": 10**6}
    again = works(WorkerSpec("a-run"), **once, **given)
    assert again == (Options(**given), "a-run")


def test_it_has_the_memory_that_the_supervisor_gives_it(tmp_path: Path) -> None:
    """The supervisor's budget holds for the worker only: the options keep the user's value."""
    found: list[tuple[int | None, int | None]] = []

    def work(session: Session) -> None:
        found.append((session._context.memory, session._context.options.memory))

    ends = os.pipe()
    command = MergeCommand(
        Options(state_dir=tmp_path / "state", memory=10**9), work, style=Style.NONE
    )
    assert command._worker(HeartbeatPipe(ends[1]), WorkerSpec(memory=10**8)) == 0
    assert found == [(10**8, 10**9)]
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    ("recorded", "expected"), [("hf://org/a", None), ("hf://org/b", "hf://org/a/")]
)
def test_a_mirror_that_the_run_has_is_not_named_again(
    works: Callable[..., Worked], recorded: str, expected: str | None
) -> None:
    """The run's own mirror is left out, as it would count as a new one; another mirror is kept."""
    options, _ = works(WorkerSpec("a-run"), recorded, mirror="hf://org/a/")
    assert options.mirror == expected
