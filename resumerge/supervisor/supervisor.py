"""The loop that starts the worker, forwards signals, and restarts a killed or stalled worker."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from resumerge.engine.resources.signals import is_repetition, stop_signals
from resumerge.errors import Resumable
from resumerge.host.oom import OomKills, lowered_budget
from resumerge.host.stalled import blocked_thread
from resumerge.supervisor import ledger_entries
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.worker import Worker
from resumerge.supervisor.worker_exit import WorkerExit, cause_of

_log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""The most consecutive deaths of workers without a newly committed block in between.

After one more death, no worker is started.
"""

LOOK_SECONDS = 0.5
"""The most seconds between two checks of the worker."""

LEAVE_SECONDS = 1.0
"""The seconds between a second stop signal and SIGKILL, for the worker to exit by itself."""

KILL_SECONDS = 30.0
"""The seconds after the first SIGKILL after which a live worker is reported as hanging."""

SAME_SECONDS = 0.1
"""The seconds within which a repeated signal counts once.

`timeout` sends its signal to the process and to the group, so that it arrives twice.
"""


@dataclass(frozen=True)
class WorkerSpec:
    """The arguments of a worker.

    Args:
        run: the id of the run to resume; None to follow the command line.
        memory: the budget of RSS in bytes; None for that of the command line.
    """

    run: str | None = None
    memory: int | None = None


class SupervisorOutput(Protocol):
    """The messages of the supervisor to the user."""

    def alive(self, pid: int, quiet: float, printed_at: float) -> None:
        """Show that the worker is alive. The supervisor calls this at every check.

        Args:
            pid: the worker's process id.
            quiet: the seconds without progress; time for which the machine slept is not counted.
            printed_at: the time when the worker last printed, on the monotonic clock; 0 if it has
                not printed.
        """

    def died(self, death: WorkerExit, spec: WorkerSpec) -> None:
        """Show that a worker died, and that the next one will start with `spec`."""

    def gave_up(self, death: WorkerExit, run: str | None) -> None:
        """Show that a worker died, and that no other worker will start."""

    def hangs(self, death: WorkerExit, run: str | None) -> None:
        """Show that a stalled worker could not be killed."""

    def stopping(self, signum: int) -> None:
        """Show that a signal requests the worker to stop. The worker commits first."""

    def stopped(self, signum: int, run: str | None) -> None:
        """Show how to resume after a worker died, or was not restarted, because of a signal."""

    def refused(self, run: str, why: str) -> None:
        """Show how to resume after a restarted worker refused its run and printed the reason."""


def supervise(
    work: Callable[[HeartbeatPipe, WorkerSpec], int],
    output: SupervisorOutput,
    ledger_of: Callable[[str], Path],
    stall_seconds: float,
) -> int:
    """Run a function in a worker process, and restart it in a new process after it was killed.

    Workers are forked from this process. Call this while the process is small and has only one
    thread.

    Args:
        work: called in the worker with its end of the heartbeat pipe; returns the exit code.
        output: shows messages to the user.
        ledger_of: returns the path of a run's ledger, by the run's id.
        stall_seconds: the seconds without progress after which a worker is killed and restarted; 0
            to never do so.

    Returns:
        the exit code of the command.
    """
    try:
        return Supervisor(work, output, ledger_of, stall_seconds).run()
    finally:
        for signum in stop_signals():
            signal.signal(signum, signal.SIG_IGN)  # a later signal must not change the exit code


class Supervisor:
    """The loop of `supervise`; see there for the arguments."""

    def __init__(
        self,
        work: Callable[[HeartbeatPipe, WorkerSpec], int],
        output: SupervisorOutput,
        ledger_of: Callable[[str], Path],
        stall_seconds: float,
    ) -> None:
        self._work, self._output, self._ledger_of = work, output, ledger_of
        self._stall_seconds = stall_seconds
        self._oom_kills = OomKills()
        self._signals: list[tuple[int, float]] = []
        self._kill_at = float("inf")
        self._wake, self._woken = os.pipe()
        for fd in (self._wake, self._woken):
            os.set_blocking(fd, False)

    def run(self) -> int:
        """Start and watch workers until one exits by itself, or a restart is useless.

        Returns:
            the exit code of the command.
        """
        self._listen()
        spec, failures, most_committed = WorkerSpec(), 0, 0
        while True:
            worker = Worker.start(
                lambda link, spec=spec: self._work(link, spec),  # type: ignore[misc]
                close=(self._wake, self._woken),
            )
            stall = self._watch(worker)
            exit_code, worker_facts = worker.exit_code(), worker.listener.facts
            run: str | None = worker_facts.get("run")
            if exit_code is None:
                return self._hangs(stall, run)
            if exit_code >= 0:
                return self._ended(exit_code, worker, spec, run)
            death = stall or WorkerExit(
                worker.pid,
                cause_of(-exit_code, self._oom_kills.rose()),
                -exit_code,
                budget=worker_facts.get("budget"),
            )
            now_committed = most_committed
            if run is not None:
                ledger_entries.record_death(self._ledger_of(run), death, worker.peak_rss)
                now_committed = ledger_entries.committed_blocks(self._ledger_of(run))
            if self._signals:
                signum = self._signals[0][0]
                self._output.stopped(signum, run)
                return 128 + signum
            failures = 1 if now_committed > most_committed else failures + 1
            most_committed = max(most_committed, now_committed)
            if failures > MOST_FAILURES:
                self._output.gave_up(death, run)
                return Resumable.exit_code
            spec = self._next(spec, death, run or spec.run, worker_facts.get("floor", 0))
            _log.info("worker ended: %s; the next one gets %s", death, spec)
            self._output.died(death, spec)
            if not self._pause(failures if death.cause == "oom" else 0):
                self._output.stopped(self._signals[0][0], spec.run)
                return 128 + self._signals[0][0]

    def _watch(self, worker: Worker) -> WorkerExit | None:
        """Wait until the worker is dead, or turns out to be unkillable.

        Returns:
            the end of a worker that stalled; None if the worker did not stall.
        """
        quiet_seconds, last_check = 0.0, time.monotonic()
        stall: WorkerExit | None = None
        while worker.exit_code() is None:
            pipes = [worker.listener.fd] if worker.listener.is_open else []
            _wait([self._wake, *pipes], LOOK_SECONDS)
            self._forward_signals(worker)
            self._oom_kills.watch(worker.pid)
            worker.measure()
            now = time.monotonic()
            # Count only the time that this process was awake. A suspended laptop is not a stall.
            quiet_seconds = (
                0.0
                if worker.listener.receive()
                else quiet_seconds + min(now - last_check, 2 * LOOK_SECONDS)
            )
            last_check = now
            printed_at = worker.listener.facts.get("printed_at", 0.0)
            self._output.alive(worker.pid, quiet_seconds, printed_at)
            if now > self._kill_at:
                if now > self._kill_at + KILL_SECONDS:
                    return stall
                worker.send(signal.SIGKILL)
            elif 0 < self._stall_seconds < quiet_seconds:
                budget = worker.listener.facts.get("budget")
                blocked_operation = blocked_thread(worker.pid)
                stall = WorkerExit(
                    worker.pid, "stall", signal.SIGKILL, quiet_seconds, blocked_operation, budget
                )
                self._kill_at = now
        self._kill_at = float("inf")
        return stall

    def _ended(self, code: int, worker: Worker, spec: WorkerSpec, run: str | None) -> int:
        """Return the command's exit code after a worker exited by itself with `code`."""
        if run is not None and len(self._signals) > 1:
            ledger_entries.record_interrupted(self._ledger_of(run), worker.pid, worker.peak_rss)
        if code == 2 and spec.run is not None:
            self._output.refused(spec.run, worker.listener.facts.get("refusal", ""))
            return Resumable.exit_code
        return code

    def _hangs(self, stalled: WorkerExit | None, run: str | None) -> int:
        """Return the command's exit code after SIGKILL did not end the worker."""
        if self._signals:
            self._output.stopped(self._signals[0][0], run)
            return 128 + self._signals[0][0]
        assert stalled is not None
        self._output.hangs(stalled, run)
        return Resumable.exit_code

    def _next(self, spec: WorkerSpec, death: WorkerExit, run: str | None, floor: int) -> WorkerSpec:
        """Return the spec of the next worker, with a lower budget after an OOM kill."""
        if death.cause != "oom" or death.budget is None:
            return WorkerSpec(run, spec.memory)
        return WorkerSpec(run, lowered_budget(death.budget, floor))

    def _pause(self, failures: int) -> bool:
        """Wait so that other processes can free memory; return False if a stop signal arrived.

        Args:
            failures: the number of consecutive deaths after an OOM kill; 0 after another death. The
                wait doubles with each failure, and is 0 for fewer than two.
        """
        end_of_pause = time.monotonic() + (2 ** (failures - 2) if failures > 1 else 0)
        while not self._signals:
            remaining_seconds = end_of_pause - time.monotonic()
            if remaining_seconds <= 0:
                break
            _wait([self._wake], remaining_seconds)
            self._take_signals()
        return not self._signals

    # Signals

    def _listen(self) -> None:
        """Direct signals into a pipe, so that `_wait` returns for a signal as for the worker."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for signum in (*stop_signals(), signal.SIGTSTP, signal.SIGCHLD):
            if signum != signal.SIGTSTP or signal.getsignal(signum) == signal.SIG_DFL:
                signal.signal(signum, _ignore)

    def _take_signals(self) -> list[int]:
        """Return the new signals, and record the stop signals among them.

        Repetitions of a recorded stop signal (`SAME_SECONDS`, `is_repetition`) are left out.
        """
        try:
            signal_numbers = list(os.read(self._wake, 256))
        except BlockingIOError:
            return []
        now = time.monotonic()
        new_signals = []
        for signum in signal_numbers:
            if signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if any(
                    (earlier_signum == signum and now - earlier_time < SAME_SECONDS)
                    or is_repetition(signum, earlier_signum)
                    for earlier_signum, earlier_time in self._signals
                ):
                    continue
                self._signals.append((signum, now))
            new_signals.append(signum)
        return new_signals

    def _forward_signals(self, worker: Worker) -> None:
        for signum in self._take_signals():
            if signum == signal.SIGTSTP:
                self._suspend(worker)
            elif signum != signal.SIGCHLD:
                if len(self._signals) == 1:
                    self._output.stopping(signum)
                worker.send(signum)
                worker.send(signal.SIGCONT)  # a stopped worker only handles it after SIGCONT
                if len(self._signals) > 1:
                    self._kill_at = min(self._kill_at, time.monotonic() + LEAVE_SECONDS)

    def _suspend(self, worker: Worker) -> None:
        """Stop the worker and this process after Ctrl-Z, until the shell continues this process."""
        worker.send(signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _ignore)
        worker.send(signal.SIGCONT)


def _wait(descriptors: list[int], seconds: float) -> None:
    """Wait until one of the descriptors is readable, but at most `seconds`."""
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.select(seconds)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Do nothing: the signal is read from the wake-up pipe."""
