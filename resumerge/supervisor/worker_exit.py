"""The cause of a worker's death, from the signal that killed it and the kernel's OOM counters."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

from resumerge.event_kinds import EventKind
from resumerge.host.stalled import ThreadState
from resumerge.sizes import show_size

_CRASHES = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),
    *(signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
}

OUTCOMES = {"oom": "oom", "killed": "killed", "crash": "error", "stall": "killed"}
"""The outcome of an attempt in the ledger, by the cause of its worker's death."""

_EVENTS = {
    "oom": EventKind.WORKER_KILLED,
    "killed": EventKind.WORKER_KILLED,
    "crash": EventKind.WORKER_CRASHED,
    "stall": EventKind.WORKER_STALLED,
}


@dataclass(frozen=True)
class WorkerExit:
    """The end of a worker that was killed or crashed.

    Args:
        pid: the worker's process id.
        cause: ``oom``: killed by the kernel because memory ran out. ``killed``: killed by another
            process. ``crash``: a fault, such as a segmentation fault. ``stall``: killed by the
            supervisor because it made no progress.
        signum: the signal that ended the worker.
        seconds: the seconds without progress, of a stall.
        waited_for: the operation that blocked the worker, of a stall.
        budget: the worker's budget of RSS in bytes; None if it died before it reported the budget.
    """

    pid: int
    cause: str
    signum: int
    seconds: float = 0.0
    waited_for: ThreadState = field(default_factory=ThreadState)
    budget: int | None = None

    @property
    def signal(self) -> str:
        """The signal's name, such as ``SIGKILL``."""
        try:
            return signal.Signals(self.signum).name
        except ValueError:
            return f"signal {self.signum}"

    @property
    def event(self) -> EventKind:
        """The kind of the event in the ledger."""
        return _EVENTS[self.cause]

    def facts(self) -> dict[str, Any]:
        """Return the data of the event."""
        facts: dict[str, Any] = {"pid": self.pid, "cause": self.cause, "signal": self.signal}
        if self.budget is not None:
            facts["budget"] = self.budget
        if self.cause == "stall":
            facts |= {"seconds": self.seconds, "waited_for": str(self.waited_for)}
        return facts

    def __str__(self) -> str:
        budget_text = f" (its budget was {show_size(self.budget)})" if self.budget else ""
        return (
            f"The worker process (pid {self.pid}) "
            + {
                "oom": f"was killed by the kernel because memory ran out{budget_text}",
                "killed": f"was killed by {self.signal}, which another process sent",
                "crash": f"crashed ({self.signal})",
                "stall": f"made no progress for {self.seconds:.0f} s; it {self.waited_for}",
            }[self.cause]
        )


def cause_of(signum: int, kernel_killed: bool) -> str:
    """Return the cause of a worker's death: ``oom``, ``killed`` or ``crash``.

    Args:
        signum: the signal that ended the worker.
        kernel_killed: whether the kernel's count of OOM kills has risen.
    """
    if signum in _CRASHES:
        return "crash"
    return "oom" if signum == signal.SIGKILL and kernel_killed else "killed"
