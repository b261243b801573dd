"""Why a worker died, told from the signal that killed it and the kernel's counters."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

from resumerge.host.waiting import Waiting

_CRASHES = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),
    *(signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
}

OUTCOMES = {"oom": "oom", "killed": "killed", "crash": "error", "stall": "killed"}
"""The outcome of an attempt, as the ledger has it, by the cause of its end."""

_EVENTS = {
    "oom": "worker_killed",
    "killed": "worker_killed",
    "crash": "worker_crashed",
    "stall": "worker_stalled",
}


@dataclass(frozen=True)
class WorkerExit:
    """The end of a worker that did not end by itself.

    Args:
        cause: ``oom``: the kernel killed it for want of memory. ``killed``: somebody did.
            ``crash``: a fault in it, as in a segmentation fault. ``stall``: the supervisor did,
            since it made no progress.
        signum: that ended it.
        seconds: for a stall, how long it made no progress.
        waited_for: for a stall, what it was doing.
        budget: bytes of RSS that it was allowed, if it came so far as to know.
    """

    pid: int
    cause: str
    signum: int
    seconds: float = 0.0
    waited_for: Waiting = field(default_factory=Waiting)
    budget: int | None = None

    @property
    def signal(self) -> str:
        """Like ``SIGKILL``."""
        try:
            return signal.Signals(self.signum).name
        except ValueError:
            return f"signal {self.signum}"

    @property
    def event(self) -> str:
        """The kind of event that the ledger gets."""
        return _EVENTS[self.cause]

    def facts(self) -> dict[str, Any]:
        """For the event."""
        facts: dict[str, Any] = {"pid": self.pid, "cause": self.cause, "signal": self.signal}
        if self.budget is not None:
            facts["budget"] = self.budget
        if self.cause == "stall":
            facts |= {"seconds": self.seconds, "waited_for": str(self.waited_for)}
        return facts

    def __str__(self) -> str:
        allowed = f" (its budget was {self.budget / 1e6:.0f} MB)" if self.budget else ""
        return (
            f"The worker, pid {self.pid}, "
            + {
                "oom": f"was killed by the kernel for want of memory{allowed}",
                "killed": f"was killed by {self.signal} from outside",
                "crash": f"crashed: {self.signal}",
                "stall": f"made no progress for {self.seconds:.0f} s: it {self.waited_for}",
            }[self.cause]
        )


def cause_of(signum: int, kernel_killed: bool) -> str:
    """``oom``, ``killed`` or ``crash``, by the signal and whether the kernel's counts rose."""
    if signum in _CRASHES:
        return "crash"
    return "oom" if signum == signal.SIGKILL and kernel_killed else "killed"
