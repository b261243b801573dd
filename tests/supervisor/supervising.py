"""A program that supervises the workers of a test and prints what happens.

It is called as `supervising.py PROGRAM STALL`. The program defines ``work(pipe, spec, number)``,
which runs in the worker number 1, 2, …. It may change `supervisor`; ``committed`` lists the number
of committed blocks after each death. The supervisor's time passes only as the program says: see
`clock`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from clock import FOREVER, Clock

from resumerge.supervisor import ledger_entries, supervisor
from resumerge.supervisor.heartbeat_pipe import HeartbeatPipe
from resumerge.supervisor.supervisor import WorkerSpec
from resumerge.supervisor.worker_exit import WorkerExit


def say(what: str, **facts: Any) -> None:
    """Print a line whole, even if other processes print at the same time."""
    os.write(1, json.dumps({"what": what, "at": CLOCK.now, **facts}).encode() + b"\n")


CLOCK = Clock(say)


class Said:
    """A `SupervisorOutput` that prints each call."""

    def alive(self, pid: int, quiet: float, printed_at: float) -> None:
        say("alive", pid=pid, quiet=quiet, printed_at=printed_at)

    def died(self, death: WorkerExit, spec: WorkerSpec) -> None:
        say("died", **told(death), run=spec.run, memory=spec.memory)

    def gave_up(self, death: WorkerExit, run: str | None) -> None:
        say("gave up", **told(death), run=run)

    def hangs(self, death: WorkerExit, run: str | None) -> None:
        say("hangs", **told(death), run=run)

    def stopping(self, signum: int) -> None:
        say("stopping", signum=signum)

    def stopped(self, signum: int, run: str | None) -> None:
        say("stopped", signum=signum, run=run)

    def refused(self, run: str, why: str) -> None:
        say("refused", run=run, why=why)


def told(death: WorkerExit) -> dict[str, Any]:
    return {
        "pid": death.pid,
        "cause": death.cause,
        "signum": death.signum,
        "seconds": death.seconds,
        "budget": death.budget,
    }


def main() -> None:
    CLOCK.install()
    given: dict[str, Any] = {
        "say": say,
        "supervisor": supervisor,
        "committed": [],
        "clock": CLOCK,
        "pass_time": CLOCK.pass_time,
        "FOREVER": FOREVER,
    }
    exec(sys.argv[1], given)
    numbers = iter(range(1, 100))
    ledger_entries.record_death = lambda ledger, death, peak: say(
        "recorded", ledger=str(ledger), cause=death.cause, peak=peak
    )
    ledger_entries.record_interrupted = lambda ledger, pid, peak: say(
        "recorded", ledger=str(ledger), cause="interrupted", peak=peak
    )
    committed = given["committed"]
    ledger_entries.committed_blocks = lambda ledger: committed.pop(0) if committed else 0

    started = supervisor.Worker.start

    def start(work: Any, **more: Any) -> Any:
        number = next(numbers)
        given["number"] = number
        worker = started(work, **more)
        say("started", pid=worker.pid, number=number)
        return worker

    supervisor.Worker.start = start  # type: ignore[method-assign]

    def work(pipe: HeartbeatPipe, spec: WorkerSpec) -> int:
        say("works", number=given["number"], run=spec.run, memory=spec.memory, pid=os.getpid())
        return int(given["work"](pipe, spec, given["number"]) or 0)

    code = supervisor.supervise(
        work, Said(), lambda run: Path(f"ledger of {run}"), float(sys.argv[2])
    )
    say("ended", code=code)


if __name__ == "__main__":
    main()
