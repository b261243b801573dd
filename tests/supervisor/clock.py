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
    """Stands for the module `time` in the supervisor, and waits for it.

    No time passes while a worker works. `pass_time` of a worker has the supervisor take its looks,
    one after the other; a pause between two workers is over at once.

    Args:
        say: is told how long each pause is.
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
        """In a worker: wait until the supervisor has looked for so long at a silent worker."""
        self._worker.send(f"pass {seconds}".encode())
        self._worker.recv(1)

    def skip_time(self, seconds: float) -> None:
        """In a worker: let time pass in which the supervisor does not run."""
        self._worker.send(f"skip {seconds}".encode())
        self._worker.recv(1)

    def wait(self, descriptors: list[int], seconds: float) -> None:
        """Stand for the supervisor's own waiting."""
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
        """Give the supervisor of this process this clock."""
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
        """Let the supervisor of this process have the time of the machine."""
        supervisor.time, supervisor._wait = time, _REAL_WAIT  # type: ignore[assignment]


_REAL_WAIT = supervisor._wait


def _ready(descriptors: list[int], seconds: float | None) -> list[int]:
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(seconds)]
