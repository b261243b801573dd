"""Start the worker, forward signals, and restart the worker when it was killed or stalls."""

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
from resumerge.supervisor import ledger_entries as journal
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.worker import Worker
from resumerge.supervisor.worker_exit import WorkerExit, cause_of

_log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""The most deaths of workers in a row without a newly committed block in between."""

LOOK_SECONDS = 0.5
"""Seconds between two checks of a silent worker."""

LEAVE_SECONDS = 1.0
"""Seconds that a worker has to exit by itself after two signals."""

KILL_SECONDS = 30.0
"""Seconds after SIGKILL from which a worker that is still alive counts as hanging in the kernel."""

SAME_SECONDS = 0.1
"""The time within which a repeated signal counts once: `timeout` signals a process and its group.
"""


@dataclass(frozen=True)
class WorkerSpec:
    """The arguments of a worker.

    Args:
        run: the id of the run to resume; None for what the command line says.
        memory: budget of RSS in bytes; None for the command line's.
    """

    run: str | None = None
    memory: int | None = None


class SupervisorOutput(Protocol):
    """An output that shows the user what the supervisor does."""

    def alive(self, pid: int, quiet: float, printed_at: float) -> None:
        """Show that the worker is alive. This is called at every look.

        Args:
            pid: the worker's process id.
            quiet: seconds without progress.
            printed_at: when the worker last printed, on the monotonic clock; 0 if it did not.
        """

    def died(self, death: WorkerExit, spec: WorkerSpec) -> None:
        """Show that a worker died, and that another is about to start."""

    def gave_up(self, death: WorkerExit, run: str | None) -> None:
        """Show that a worker died, and that no other is started."""

    def hangs(self, death: WorkerExit, run: str | None) -> None:
        """Show that a stalled worker could not be killed."""

    def stopping(self, signum: int) -> None:
        """Show that a signal asks the worker to stop. The worker commits first."""

    def stopped(self, signum: int, run: str | None) -> None:
        """Show how to resume after a worker that died while a signal was stopping it."""

    def refused(self, run: str, why: str) -> None:
        """Show how to resume after a restarted worker refused its run, and printed why."""


def supervise(
    work: Callable[[HeartbeatPipe, WorkerSpec], int],
    output: SupervisorOutput,
    ledger_of: Callable[[str], Path],
    stall_seconds: float,
) -> int:
    """Do a piece of work in a worker process, and in a new one each time that it is killed.

    Call it while this process is small and has no other thread: workers are forked from it.

    Args:
        work: run in the worker, with its end of the heartbeat pipe; returns the exit code.
        output: shows the user what happens.
        ledger_of: returns the path of a run's ledger, by the run's id.
        stall_seconds: a worker without progress for longer is killed and restarted; 0 means never.

    Returns:
        the exit code of the command.
    """
    try:
        return Supervisor(work, output, ledger_of, stall_seconds).run()
    finally:
        for signum in stop_signals():
            signal.signal(signum, signal.SIG_IGN)  # too late to change the exit code


class Supervisor:
    """The loop of `supervise`: starts workers and watches them until one exits by itself."""

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
        """Start workers until one exits by itself, or a restart cannot help."""
        self._listen()
        spec, failures, committed = WorkerSpec(), 0, 0
        while True:
            worker = Worker.start(
                lambda link, spec=spec: self._work(link, spec),  # type: ignore[misc]
                close=(self._wake, self._woken),
            )
            stalled = self._watch(worker)
            code, facts = worker.exit_code(), worker.listener.facts
            run: str | None = facts.get("run")
            if code is None:
                return self._hangs(stalled, run)
            if code >= 0:
                return self._ended(code, worker, spec, run)
            death = stalled or WorkerExit(
                worker.pid,
                cause_of(-code, self._oom_kills.rose()),
                -code,
                budget=facts.get("budget"),
            )
            now_committed = committed
            if run is not None:
                journal.record_death(self._ledger_of(run), death, worker.peak_rss)
                now_committed = journal.committed_blocks(self._ledger_of(run))
            if self._signals:
                signum = self._signals[0][0]
                self._output.stopped(signum, run)
                return 128 + signum
            failures = 1 if now_committed > committed else failures + 1
            committed = max(committed, now_committed)
            if failures > MOST_FAILURES:
                self._output.gave_up(death, run)
                return Resumable.exit_code
            spec = self._next(spec, death, run or spec.run, facts.get("floor", 0))
            _log.info("worker ended: %s; the next one gets %s", death, spec)
            self._output.died(death, spec)
            if not self._pause(failures if death.cause == "oom" else 0):
                self._output.stopped(self._signals[0][0], spec.run)
                return 128 + self._signals[0][0]

    def _watch(self, worker: Worker) -> WorkerExit | None:
        """Wait until the worker is dead or cannot be killed; return its death if it stalled."""
        quiet, looked = 0.0, time.monotonic()
        stalled: WorkerExit | None = None
        while worker.exit_code() is None:
            pipes = [worker.listener.fd] if worker.listener.is_open else []
            _wait([self._wake, *pipes], LOOK_SECONDS)
            self._forward_signals(worker)
            self._oom_kills.look(worker.pid)
            worker.measure()
            now = time.monotonic()
            # Count only the time that this process was awake: a suspended laptop is no stall.
            quiet = (
                0.0 if worker.listener.receive() else quiet + min(now - looked, 2 * LOOK_SECONDS)
            )
            looked = now
            printed_at = worker.listener.facts.get("printed_at", 0.0)
            self._output.alive(worker.pid, quiet, printed_at)
            if now > self._kill_at:
                if now > self._kill_at + KILL_SECONDS:
                    return stalled
                worker.send(signal.SIGKILL)
            elif 0 < self._stall_seconds < quiet:
                budget = worker.listener.facts.get("budget")
                blocked = blocked_thread(worker.pid)
                stalled = WorkerExit(worker.pid, "stall", signal.SIGKILL, quiet, blocked, budget)
                self._kill_at = now
        self._kill_at = float("inf")
        return stalled

    def _ended(self, code: int, worker: Worker, spec: WorkerSpec, run: str | None) -> int:
        """Return the exit code after a worker that exited by itself and printed why."""
        if run is not None and len(self._signals) > 1:
            journal.record_interrupted(self._ledger_of(run), worker.pid, worker.peak_rss)
        if code == 2 and spec.run is not None:
            self._output.refused(spec.run, worker.listener.facts.get("refusal", ""))
            return Resumable.exit_code
        return code

    def _hangs(self, stalled: WorkerExit | None, run: str | None) -> int:
        """Return the exit code after SIGKILL did not end the worker, which waits in the kernel."""
        if self._signals:
            self._output.stopped(self._signals[0][0], run)
            return 128 + self._signals[0][0]
        assert stalled is not None
        self._output.hangs(stalled, run)
        return Resumable.exit_code

    def _next(self, spec: WorkerSpec, death: WorkerExit, run: str | None, floor: int) -> WorkerSpec:
        """Return the spec of the next worker: with half of the budget after an OOM kill."""
        if death.cause != "oom" or death.budget is None:
            return WorkerSpec(run, spec.memory)
        return WorkerSpec(run, lowered_budget(death.budget, floor))

    def _pause(self, failures: int) -> bool:
        """Give other processes time to free memory. Return False if a signal arrived meanwhile."""
        until = time.monotonic() + (2 ** (failures - 2) if failures > 1 else 0)
        while not self._signals:
            left = until - time.monotonic()
            if left <= 0:
                break
            _wait([self._wake], left)
            self._take_signals()
        return not self._signals

    # Signals

    def _listen(self) -> None:
        """Have signals arrive in a pipe, so that `_wait` ends for them and the worker."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for signum in (*stop_signals(), signal.SIGTSTP, signal.SIGCHLD):
            if signum != signal.SIGTSTP or signal.getsignal(signum) == signal.SIG_DFL:
                signal.signal(signum, _ignore)

    def _take_signals(self) -> list[int]:
        """Return the signals that arrived, and remember those that ask to stop."""
        try:
            came = list(os.read(self._wake, 256))
        except BlockingIOError:
            return []
        now = time.monotonic()
        new = []
        for signum in came:
            if signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if any(
                    (s == signum and now - at < SAME_SECONDS) or is_repetition(signum, s)
                    for s, at in self._signals
                ):
                    continue
                self._signals.append((signum, now))
            new.append(signum)
        return new

    def _forward_signals(self, worker: Worker) -> None:
        for signum in self._take_signals():
            if signum == signal.SIGTSTP:
                self._suspend(worker)
            elif signum != signal.SIGCHLD:
                if len(self._signals) == 1:
                    self._output.stopping(signum)
                worker.send(signum)
                worker.send(signal.SIGCONT)  # a stopped worker must get it, too
                if len(self._signals) > 1:
                    self._kill_at = min(self._kill_at, time.monotonic() + LEAVE_SECONDS)

    def _suspend(self, worker: Worker) -> None:
        """Stop the worker and this process at Ctrl-Z, until the shell continues this process."""
        worker.send(signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _ignore)
        worker.send(signal.SIGCONT)


def _wait(descriptors: list[int], seconds: float) -> None:
    """Wait until one of the descriptors can be read, or the time is over."""
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.select(seconds)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Do nothing at a signal: the wake-up pipe has it."""
