"""A supervised merge as a process: its worker, its ledger, and how it ends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ledger_rows import query
from waiting import HANGS_SECONDS, wait_until

from resumerge.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore
from resumerge.output_path import CARD

SLOWLY = Path(__file__).with_name("slowly.py")
HELD = 40
"""Of 52 blocks: three seconds, and the first of two batches is committed."""

RECIPE = "merge_method: slowly\nmodels: [{model: math}, {model: code}]\n"

ONE_STALL = """
import os
from resumerge.__main__ import main
from resumerge.supervisor import supervisor
class Supervisor(supervisor.Supervisor):
    workers = 0
    def _watch(self, worker):
        self.workers += 1
        return super()._watch(worker)
    @property
    def _stall_seconds(self):
        return self.seconds if self.workers == 1 and os.path.exists({stalls!r}) else 0.0
    @_stall_seconds.setter
    def _stall_seconds(self, seconds):
        self.seconds = seconds
supervisor.Supervisor = Supervisor
main()
"""
"""The program, with a supervisor to which only its first worker can stall, once a file is there."""

PATIENT = """
from resumerge.__main__ import main
from resumerge.supervisor import supervisor
supervisor.LEAVE_SECONDS = 300.0
main()
"""
"""The program, with a supervisor that gives a worker long to leave after a second signal."""


@dataclass
class Supervised:
    """A merge in a folder of its own.

    Args:
        folder: the folder of recipe, output, ledger and accidents.
        models: the folder of the recipe's models.
        environment: further variables of the process.
        code: the code of the process; empty for the program itself.
    """

    folder: Path
    models: Path
    environment: dict[str, str] = field(default_factory=dict)
    code: str = ""

    def __post_init__(self) -> None:
        self.out, self.state = self.folder / "merged", self.folder / "state"
        self.accidents = self.folder / "accidents"
        self.accidents.mkdir()
        (self.accidents / "hold").write_text(str(HELD))
        (self.folder / "recipe.yaml").write_text(RECIPE)

    @property
    def command(self) -> list[str]:
        program = [sys.executable, *(["-c", self.code] if self.code else ["-m", "resumerge"])]
        words = ["run", str(self.folder / "recipe.yaml"), str(self.out)]
        return [*program, *words, "--state-dir", str(self.state), "--threads", "1"]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments for `subprocess`."""
        environment = {"SLOWLY_ACCIDENTS": str(self.accidents), "RESUMERGE_METHODS": str(SLOWLY)}
        return {
            "cwd": self.models,
            "env": {**os.environ, "COLUMNS": "200", **environment, **self.environment},
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.command, *words], text=True, **self.options)

    def end(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """Let a merge end without delays; return its stdout and stderr."""
        (self.accidents / "hurry").touch()
        return process.communicate()

    def go_on(self) -> None:
        """Remove the hold, so that no process waits any more."""
        (self.accidents / "hold").unlink(missing_ok=True)

    def resume(self) -> None:
        """Run `resumerge resume` without delays, to its end."""
        self.go_on()
        words = ["resume", str(self.out), "--state-dir", str(self.state)]
        options = {**self.options, "env": {**self.options["env"], "SLOWLY_SECONDS": "0"}}
        done = subprocess.run([*self.command[:3], *words], text=True, **options)
        assert done.returncode == 0, done.stderr

    def wait_until_committed(self, process: subprocess.Popen[str], blocks: int = 1) -> int:
        """Wait until this number of blocks is committed; return the pid of the worker."""
        wait_until(lambda: self.committed() >= blocks, process)
        (worker,) = psutil.Process(process.pid).children()
        return worker.pid

    def committed(self) -> int:
        """Return the number of committed blocks."""
        rows = self.rows("SELECT coalesce(sum(committed_blocks), 0) AS n FROM units")
        return int(rows[0]["n"]) if rows else 0

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows that a query finds in the ledger; none if there is no run yet."""
        runs = RunStore(self.state).runs()
        if not runs:
            return []
        return query(runs[-1] / LEDGER_FILE, sql)

    def outcomes(self) -> list[str | None]:
        """Return the outcomes of all attempts, in order."""
        return [row["outcome"] for row in self.rows("SELECT outcome FROM attempts ORDER BY n")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of the events of a kind."""
        rows = self.rows("SELECT kind, data FROM events ORDER BY id")
        return [json.loads(row["data"]) for row in rows if row["kind"] == kind]

    def files(self) -> dict[str, bytes]:
        """Return the files of the output without the card, which names torch if torch computed."""
        return {
            str(path.relative_to(self.out)): path.read_bytes()
            for path in sorted(self.out.rglob("*"))
            if path.is_file() and path.name != CARD
        }


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_dead(pid: int) -> None:
    """Wait for the end of the last thread of a process, a child or not.

    A process seems to be a zombie once its first thread has ended. Another thread may still sync a
    file then, and with it the process holds the lock of its run.
    """
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            assert select.select([handle], [], [], HANGS_SECONDS)[0], "it does not end"
        finally:
            os.close(handle)
