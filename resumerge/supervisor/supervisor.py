"""Start the worker, pass signals on, and start it again when it was killed or stands still."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from resumerge.host.oom import OomKills
from resumerge.host.waiting import waiting
from resumerge.supervisor import ledger_entries as journal
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.worker import Worker
from resumerge.supervisor.worker_exit import WorkerExit, cause_of

_log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Times that a worker is started again without a newly committed block."""

LOOK_SECONDS = 0.5
"""Time between two looks at a worker that says nothing."""

LEAVE_SECONDS = 1.0
"""A worker that was told twice to stop has so long to leave by itself."""

KILL_SECONDS = 30.0
"""A worker that is not dead so long after SIGKILL hangs in the kernel."""

SAME_SECONDS = 0.1
"""The same signal twice within this is one: `timeout` signals a process and then its group."""

RESUMABLE = 75


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker shall do.

    Args:
        run: the id of the run to resume; None to do what the command line says.
        memory: budget of RSS in bytes in place of the command line's; None leaves that.
    """

    run: str | None = None
    memory: int | None = None


class SupervisorOutput(Protocol):
    """Tells the user what the supervisor does."""

    def silent(self, pid: int, quiet: float) -> None:
        """A worker lives; nothing has moved for so many seconds. Called at every look."""

    def died(self, death: WorkerExit, orders: WorkerSpec) -> None:
        """A worker died; the next one is about to start."""

    def gave_up(self, death: WorkerExit, run: str | None) -> None:
        """A worker died, and no other is started."""

    def hangs(self, death: WorkerExit, run: str | None) -> None:
        """A worker that makes no progress could not even be killed."""

    def stopped(self, signum: int, run: str | None) -> None:
        """The worker died while it was being stopped by a signal, and could not say so itself."""

    def refused(self, run: str, why: str) -> None:
        """A worker that was to go on with a run found that it cannot, and said why on stderr."""


def supervise(
    work: Callable[[HeartbeatPipe, WorkerSpec], int],
    teller: SupervisorOutput,
    ledger_of: Callable[[str], Path],
    stall_seconds: float,
) -> int:
    """Have a worker do a piece of work, in as many processes as it takes.

    To be called while this process is small and has no other thread: workers are forked from it.

    Args:
        work: done in the worker, with its end of the link; returns the exit code.
        ledger_of: the ledger's file of a run by its id.
        stall_seconds: a worker without progress for longer is killed and started again; 0: never.

    Returns:
        The exit code of the command.
    """
    try:
        return Supervisor(work, teller, ledger_of, stall_seconds).run()
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)  # too late to change how the command ends


class Supervisor:
    """See `supervise`."""

    def __init__(
        self,
        work: Callable[[HeartbeatPipe, WorkerSpec], int],
        teller: SupervisorOutput,
        ledger_of: Callable[[str], Path],
        stall_seconds: float,
    ) -> None:
        self._work, self._teller, self._ledger_of = work, teller, ledger_of
        self._stall_seconds = stall_seconds
        self._oom_kills = OomKills()
        self._signals: list[tuple[int, float]] = []
        self._kill_at = float("inf")
        self._wake, self._woken = os.pipe()
        for fd in (self._wake, self._woken):
            os.set_blocking(fd, False)

    def run(self) -> int:
        """Until a worker ends by itself, or nothing is gained by starting another."""
        self._listen()
        orders, failures, committed = WorkerSpec(), 0, 0
        while True:
            worker = Worker.start(
                lambda link, orders=orders: self._work(link, orders),  # type: ignore[misc]
                close=(self._wake, self._woken),
            )
            stalled = self._watch(worker)
            code, facts = worker.exit_code(), worker.listener.facts
            run: str | None = facts.get("run")
            if code is None:
                return self._hangs(stalled, run)
            if code >= 0:
                return self._ended(code, worker, orders, run)
            death = stalled or WorkerExit(
                worker.pid,
                cause_of(-code, self._oom_kills.rose()),
                -code,
                budget=facts.get("budget"),
            )
            now_committed = committed
            if run is not None:
                journal.record(self._ledger_of(run), death, worker.peak_rss)
                now_committed = journal.committed_blocks(self._ledger_of(run))
            if self._signals:
                signum = self._signals[0][0]
                self._teller.stopped(signum, run)
                return 128 + signum
            failures = 1 if now_committed > committed else failures + 1
            committed = max(committed, now_committed)
            if failures > MOST_FAILURES:
                self._teller.gave_up(death, run)
                return RESUMABLE
            orders = self._next(orders, death, run or orders.run, facts.get("floor", 0))
            _log.info("worker ended: %s; the next one gets %s", death, orders)
            self._teller.died(death, orders)
            if not self._pause(failures if death.cause == "oom" else 0):
                self._teller.stopped(self._signals[0][0], orders.run)
                return 128 + self._signals[0][0]

    def _watch(self, worker: Worker) -> WorkerExit | None:
        """Until the worker is dead (or cannot die); how, if it was killed here for a stall."""
        quiet, looked = 0.0, time.monotonic()
        stalled: WorkerExit | None = None
        while worker.exit_code() is None:
            said = [worker.listener.fd] if worker.listener.speaks else []
            select.select([self._wake, *said], [], [], LOOK_SECONDS)
            self._pass_on(worker)
            self._oom_kills.look(worker.pid)
            worker.look()
            now = time.monotonic()
            # Only what this process was awake for: a suspended laptop is no stall.
            quiet = 0.0 if worker.listener.hear() else quiet + min(now - looked, 2 * LOOK_SECONDS)
            looked = now
            self._teller.silent(worker.pid, quiet)
            if now > self._kill_at:
                if now > self._kill_at + KILL_SECONDS:
                    return stalled
                worker.send(signal.SIGKILL)
            elif 0 < self._stall_seconds < quiet:
                budget = worker.listener.facts.get("budget")
                what = waiting(worker.pid)
                stalled = WorkerExit(worker.pid, "stall", signal.SIGKILL, quiet, what, budget)
                self._kill_at = now
        self._kill_at = float("inf")
        return stalled

    def _ended(self, code: int, worker: Worker, orders: WorkerSpec, run: str | None) -> int:
        """The worker ended by itself, and said why."""
        if run is not None and len(self._signals) > 1:
            journal.record_interrupted(self._ledger_of(run), worker.pid, worker.peak_rss)
        if code == 2 and orders.run is not None:
            self._teller.refused(orders.run, worker.listener.facts.get("refusal", ""))
            return RESUMABLE
        return code

    def _hangs(self, stalled: WorkerExit | None, run: str | None) -> int:
        """Even SIGKILL does not end it: it waits for a device in the kernel."""
        if self._signals:
            self._teller.stopped(self._signals[0][0], run)
            return 128 + self._signals[0][0]
        assert stalled is not None
        self._teller.hangs(stalled, run)
        return RESUMABLE

    def _next(
        self, orders: WorkerSpec, death: WorkerExit, run: str | None, floor: int
    ) -> WorkerSpec:
        """What the next worker shall do: after an OOM, with half of the budget it had."""
        if death.cause != "oom" or death.budget is None:
            return WorkerSpec(run, orders.memory)
        return WorkerSpec(run, min(death.budget, max(floor, death.budget // 2)))

    def _pause(self, failures: int) -> bool:
        """Give others time to let go of memory; whether no signal came meanwhile."""
        until = time.monotonic() + (2 ** (failures - 2) if failures > 1 else 0)
        while not self._signals:
            left = until - time.monotonic()
            if left <= 0:
                break
            select.select([self._wake], [], [], left)
            self._take_signals()
        return not self._signals

    # Signals

    def _listen(self) -> None:
        """Signals arrive as bytes in a pipe, to be waited for together with the worker."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGCHLD):
            if signum != signal.SIGTSTP or signal.getsignal(signum) == signal.SIG_DFL:
                signal.signal(signum, _noted)

    def _take_signals(self) -> list[int]:
        """Signals that came; those that ask to stop are remembered."""
        try:
            came = list(os.read(self._wake, 256))
        except BlockingIOError:
            return []
        now = time.monotonic()
        new = []
        for signum in came:
            if signum in (signal.SIGINT, signal.SIGTERM):
                if any(s == signum and now - at < SAME_SECONDS for s, at in self._signals):
                    continue
                self._signals.append((signum, now))
            new.append(signum)
        return new

    def _pass_on(self, worker: Worker) -> None:
        for signum in self._take_signals():
            if signum == signal.SIGTSTP:
                self._sleep(worker)
            elif signum != signal.SIGCHLD:
                worker.send(signum)
                worker.send(signal.SIGCONT)  # one that was stopped shall hear it, too
                if len(self._signals) > 1:
                    self._kill_at = min(self._kill_at, time.monotonic() + LEAVE_SECONDS)

    def _sleep(self, worker: Worker) -> None:
        """Ctrl-Z: the worker and this process stop, until the shell lets this process go on."""
        worker.send(signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _noted)
        worker.send(signal.SIGCONT)


def _noted(signum: int, frame: FrameType | None) -> None:
    """The pipe has it."""
