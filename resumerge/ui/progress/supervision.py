"""The supervisor's messages: lines on stderr for people, JSON Lines on stdout for programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from resumerge.errors import Reason, Resumable
from resumerge.sizes import show_seconds, show_size
from resumerge.supervisor.supervisor import MOST_FAILURES, SupervisorOutput, WorkerSpec
from resumerge.supervisor.worker_exit import WorkerExit
from resumerge.ui.progress.keepalive import SILENCE_SECONDS, PrintClock
from resumerge.ui.terminal.console import SafeConsole, print_json_line
from resumerge.ui.terminal.prose import say
from resumerge.ui.terminal.terminal import print_command_to_resume

_ADVICE = {
    "oom": "Before resuming, close other programs or raise the memory limit of this container.",
    "killed": "Before resuming, find out what killed it: the time or memory limit of a job, or a "
    "process manager.",
    "crash": "A library or a merge method of your own has a bug. Another version of it, or "
    "--threads 1, may help. Everything committed is kept.",
}

_STALL_ADVICE = {
    "D": "Before resuming, repair the disk or the network filesystem that the worker waited for.",
    "R": (
        "A library or a merge method of your own may be in an endless loop. If the computation "
        "is just slow, allow more time with --stall-timeout."
    ),
    "T": "Before resuming, find out what stopped the process: job control, or a container that was "
    "paused.",
    "t": "Before resuming, detach the debugger.",
}
"""The advice for a stalled worker, by its process state as the kernel reports it."""

_SLOW_ADVICE = "If the worker just waited for something slow, allow more time with --stall-timeout."


class Supervision(SupervisorOutput):
    """An output of the supervisor. The last line on stderr is the command that resumes the run.

    Args:
        command: returns the command that resumes a run; for None, the present command again.
        clock: the time since the worker or the supervisor printed; None to print nothing about
            slow workers.
    """

    def __init__(
        self,
        err: SafeConsole,
        command: Callable[[str | None], str],
        *,
        as_json: bool,
        clock: PrintClock | None = None,
    ) -> None:
        self._err, self._command, self._as_json, self._clock = err, command, as_json, clock

    def alive(self, pid: int, quiet: float, printed_at: float) -> None:
        if self._clock is None:
            return
        self._clock.reset(printed_at)
        is_log = not (self._as_json or self._err.is_terminal)
        is_silent = self._clock.silence >= SILENCE_SECONDS
        if not (self._clock.is_due(SILENCE_SECONDS) if is_log else is_silent):
            return
        self._clock.reset()
        text = f"The worker (pid {pid}) is alive"
        if quiet >= 1:
            text += f", but has made no progress for {show_seconds(quiet)}"
        if self._as_json:
            self._event("alive", doing="waiting for the worker", text=text)
        elif self._err.is_terminal:
            self._clear()
            self._err.print(Text(text, no_wrap=True, overflow="ellipsis"), end="")
        else:
            self._print(text)

    def died(self, death: WorkerExit, spec: WorkerSpec) -> None:
        is_smaller = spec.memory is not None and spec.memory != death.budget
        budget_text = f" with a budget of {show_size(spec.memory or 0)}" if is_smaller else ""
        self._clear()
        self._print(f"{death}. A new worker is started{budget_text}.")
        self._event(death.event, **death.facts(), run=spec.run, next_budget=spec.memory)

    def gave_up(self, death: WorkerExit, run: str | None) -> None:
        self._clear()
        message = (
            f"{death}. The worker was restarted {MOST_FAILURES} times in a row without progress, "
            "so no new one is started."
        )
        self._print(message)
        self._print(_advice(death))
        self._event(death.event, **death.facts(), run=run)
        self._stopped(Reason(death.cause), message, run)

    def hangs(self, death: WorkerExit, run: str | None) -> None:
        self._clear()
        message = f"{death}. SIGKILL does not end it, because it waits in the kernel for a device."
        self._print(message)
        self._print(_STALL_ADVICE["D"])
        self._stopped(Reason.WORKER_STALLED, message, run)

    def stopping(self, signum: int) -> None:
        if signum == signal.SIGINT and self._err.is_terminal and self._clock is not None:
            self._clear()
            self._print(
                "Stopping: finished work is committed first. To stop at once, press Ctrl-C again."
            )

    def stopped(self, signum: int, run: str | None) -> None:
        command = self._command(run)
        self._clear()
        self._print("The worker did not stop in time and was killed. Everything committed is kept.")
        self._event("interrupted", run=run, resume=command, exit_code=128 + signum)
        print_command_to_resume(command, self._err)

    def refused(self, run: str, why: str) -> None:
        self._stopped(Reason.REFUSED, why, run)

    def _stopped(self, reason: Reason, message: str, run: str | None) -> None:
        """Print the last lines: the error as JSON for programs, and the command that resumes."""
        command = self._command(run)
        error_document = Resumable(reason, message).as_json()
        self._event(**error_document, run=run, resume=command)
        print_command_to_resume(command, self._err)

    def _clear(self) -> None:
        """Remove the remains of a killed worker's progress bar from the terminal."""
        if self._err.is_terminal:
            self._err.control(
                Control((ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2))
            )
            self._err.show_cursor()

    def _print(self, text: str) -> None:
        if self._clock is not None:
            self._clock.reset()
        say(self._err, text)

    def _event(self, kind: str, **data: Any) -> None:
        if self._as_json:
            print_json_line(sys.stdout, kind, **data)


def _advice(death: WorkerExit) -> str:
    """Return advice for the user on what to do before resuming."""
    if death.cause != "stall":
        return _ADVICE[death.cause]
    return _STALL_ADVICE.get(death.waited_for.state, _SLOW_ADVICE)
