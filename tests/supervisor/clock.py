"""A clock for a supervisor: its time passes where a test says so, however slow the machine is."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from resumerge.supervisor import supervisor

FOREVER = float("inf")


class Clock:
    """A replacement for the module `time`, and for the waiting, of a supervisor.

    No time passes while a worker works. In a worker's `pass_time` the supervisor makes its checks,
    one after the other; a pause between two workers ends at once.

    Args:
        say: called at each pause, with the number of failures.
    """

    def __init__(self, say: Callable[..., None]) -> None:
        self.now = 1000.0
        self.holds_pauses = False
        """Whether a pause lasts until a signal ends it."""
        self._say, self._owed, self._asked, self._killed, self._pauses = (
            say,
            0.0,
            False,
            False,
            False,
        )
        self._here, self._worker = socket.socketpair()

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self.now

    def pass_time(self, seconds: float) -> None:
        """Wait, in a worker, until the supervisor has watched the silent worker for this time."""
        self._worker.send(f"pass {seconds}".encode())
        self._worker.recv(1)

    def skip_time(self, seconds: float) -> None:
        """Let time pass, from a worker, in which the supervisor does not run."""
        self._worker.send(f"skip {seconds}".encode())
        self._worker.recv(1)

    def wait(self, descriptors: list[int], seconds: float) -> None:
        """Wait in place of the supervisor's own function."""
        if self._asked and not self._owed:
            self._asked = False
            self._here.send(b".")
        while True:
            passes = self._pauses or (self._owed > 0 and not self._killed)
            ready = _ready([*descriptors, self._here.fileno()], 0 if passes else None)
            if self._here.fileno() in ready:
                self._asked = True
                kind, asked = self._here.recv(100).decode().split()
                if kind == "skip":
                    self.now += float(asked)
                    return
                self._owed = float(asked)
            elif ready:
                return
            elif self._pauses:
                self.now += seconds
                return
            else:
                step = min(seconds, self._owed)
                self.now, self._owed = self.now + step, self._owed - step
                return

    def install(self) -> None:
        """Make the supervisor of this process use this clock."""
        supervisor.time, supervisor._wait = self, self.wait  # type: ignore[assignment]
        send, start, pause = (
            supervisor.Worker.send,
            supervisor.Worker.start,
            supervisor.Supervisor._pause,
        )

        def sent(worker: supervisor.Worker, signum: int) -> None:
            self._killed |= signum == signal.SIGKILL  # its end is waited for, however long it takes
            send(worker, signum)

        def started(*given: Any, **more: Any) -> supervisor.Worker:
            self._owed, self._asked, self._killed = 0.0, False, False
            return start(*given, **more)

        def paused(of: supervisor.Supervisor, failures: int) -> bool:
            self._say("pauses", failures=failures)
            self._pauses = not self.holds_pauses
            try:
                return pause(of, failures)
            finally:
                self._pauses = False

        supervisor.Worker.send, supervisor.Worker.start = sent, started  # type: ignore
        supervisor.Supervisor._pause = paused  # type: ignore[method-assign]

    def remove(self) -> None:
        """Make the supervisor of this process use the machine's clock again."""
        supervisor.time, supervisor._wait = time, _REAL_WAIT  # type: ignore[assignment]


_REAL_WAIT = supervisor._wait


def _ready(descriptors: list[int], seconds: float | None) -> list[int]:
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(seconds)]
