"""What the supervisor tells: lines on stderr for people, JSON Lines on stdout for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rich.control import Control
from rich.segment import ControlType

from resumerge.report.sizes import show_seconds, show_size
from resumerge.supervisor.supervisor import MOST_FAILURES, WorkerSpec
from resumerge.supervisor.worker_exit import WorkerExit
from resumerge.ui.progress.keepalive import SILENCE_SECONDS, LastSaid
from resumerge.ui.terminal.console import PatientConsole, print_json_line

_ADVICE = {
    "oom": "Stop other programs, or raise the memory limit of this container, before resuming.",
    "killed": "Find out who kills it (a job's time or memory limit, a process manager), "
    "before resuming.",
    "crash": "A library or a merge method of your own is at fault; another version of it, or "
    "--threads 1, may help. What is committed is kept.",
}

_STALL_ADVICE = {
    "D": "Mend the disk or the network filesystem that it waits for, before resuming.",
    "R": "A merge method of your own, or a library, may compute for ever; where a block only takes "
    "long, give it more time with --stall-timeout.",
    "T": "Find out who stopped it (job control, a container that was paused), before resuming.",
    "t": "Let the debugger go, before resuming.",
}
"""By the state that the worker was in."""

_PATIENCE = "Where it only waits for something slow, give it more time with --stall-timeout."


class Supervision:
    """Tells people or programs; the last line on stderr is the command that resumes.

    Args:
        command: the command that resumes a run, or repeats this one where there is no run yet.
        said: when worker or supervisor last printed; None if silence is wanted.
    """

    def __init__(
        self,
        err: PatientConsole,
        command: Callable[[str | None], str],
        *,
        as_json: bool,
        said: LastSaid | None = None,
    ) -> None:
        self._err, self._command, self._as_json, self._said = err, command, as_json, said

    def silent(self, pid: int, quiet: float) -> None:
        if self._said is None or self._said.silence < SILENCE_SECONDS:
            return
        self._said.now()
        text = f"The worker (pid {pid}) is there, but nothing has moved for {show_seconds(quiet)}"
        if self._as_json:
            self._event("alive", doing="waiting for the worker", text=text)
        else:
            self._clear()
            self._say(text)

    def died(self, death: WorkerExit, orders: WorkerSpec) -> None:
        smaller = orders.memory is not None and orders.memory != death.budget
        how = f" with a budget of {show_size(orders.memory)}" if smaller and orders.memory else ""
        self._clear()
        self._say(f"{death}; going on{how}")
        self._event(death.event, **death.facts(), run=orders.run, next_budget=orders.memory)

    def gave_up(self, death: WorkerExit, run: str | None) -> None:
        self._clear()
        self._say(f"{death}; that was {MOST_FAILURES + 1} times without progress, and is enough")
        self._say(_advice(death))
        command = self._command(run)
        self._event(death.event, **death.facts(), run=run)
        self._event("stopped", reason=death.cause, run=run, resume=command, exit_code=75)
        self._say(command)

    def hangs(self, death: WorkerExit, run: str | None) -> None:
        self._clear()
        self._say(f"{death}. It does not even die when it is killed: the kernel waits for a device")
        self._say(_STALL_ADVICE["D"])
        command = self._command(run)
        self._event("stopped", reason="stall", run=run, resume=command, exit_code=75)
        self._say(command)

    def stopped(self, signum: int, run: str | None) -> None:
        command = self._command(run)
        self._clear()
        self._say("The worker did not leave by itself and was killed; what is committed is kept")
        self._event("interrupted", run=run, resume=command, exit_code=128 + signum)
        self._say(command)

    def refused(self, run: str, why: str) -> None:
        command = self._command(run)
        facts = {"reason": "refused", "message": why, "run": run}
        self._event("stopped", **facts, resume=command, exit_code=75)
        self._say(command)

    def _clear(self) -> None:
        """Take away what a worker's progress bar left on a terminal when it was killed."""
        if self._err.is_terminal:
            self._err.control(
                Control((ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2))
            )
            self._err.show_cursor()

    def _say(self, text: str) -> None:
        if self._said is not None:
            self._said.now()
        self._err.print(text, highlight=False, soft_wrap=True)

    def _event(self, kind: str, **data: Any) -> None:
        if self._as_json:
            print_json_line(sys.stdout, kind, **data)


def _advice(death: WorkerExit) -> str:
    """What to do before resuming."""
    if death.cause != "stall":
        return _ADVICE[death.cause]
    waited_for = death.waited_for
    state = "D" if waited_for.file and waited_for.state == "S" else waited_for.state
    return _STALL_ADVICE.get(state, _PATIENCE)
