"""A supervisor as a process, whose workers do what a test writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

SUPERVISING = Path(__file__).with_name("supervising.py")

PRELUDE = """
import os, signal, time
supervisor.LOOK_SECONDS = supervisor.LEAVE_SECONDS = 0.1
supervisor.KILL_SECONDS = 1.0
def die(signum=signal.SIGKILL):
    os.kill(os.getpid(), signum)
    time.sleep(60)
def listen(*signums):
    came = []
    def comes(signum, frame):
        say("signal", signum=signum)
        came.append(signum)
    for signum in signums:
        signal.signal(signum, comes)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signums)
    say("listens")
    return came
def come_to(signals, number):
    while len(signals) < number:
        time.sleep(0.01)
def send_no_kills():
    real = supervisor.Worker.send
    def send(worker, signum):
        if signum != signal.SIGKILL:
            real(worker, signum)
        else:
            say("kills")
    supervisor.Worker.send = send
OOM = []
supervisor.OomKills.rose = lambda self: OOM.pop(0) if OOM else False
"""

Said = list[dict[str, Any]]


class Supervising:
    """A supervisor in a process of its own.

    Args:
        program: code that defines `work`; see `supervising`.
        stall: the stall timeout in seconds; 0 for none.
    """

    def __init__(self, program: str, stall: float = 0.0) -> None:
        words = [sys.executable, str(SUPERVISING), PRELUDE + dedent(program), str(stall)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        self._said: Said = []

    def wait_for(self, what: str, number: int = 1) -> dict[str, Any]:
        """Return the `number`-th message of a kind, once it is printed."""
        while len(found := self.of(what)) < number:
            self._read()
        return found[number - 1]

    def _read(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._said
        self._said.append(json.loads(line))

    def goes_on(self, what: str, number: int) -> bool:
        """Wait for the `number`-th such message; return False if the worker is stopped first."""
        while len(self.of(what)) < number and not self.of("stopped"):
            self._read()
        return len(self.of(what)) >= number

    def of(self, what: str) -> Said:
        return [said for said in self._said if said["what"] == what]

    def send(self, *signums: int) -> None:
        for signum in signums:
            self.process.send_signal(signum)

    def send_after(self, what: str, *signums: int) -> None:
        self.wait_for(what)
        self.send(*signums)

    def end(self) -> Said:
        """Wait for the end, and return all messages but those of living workers."""
        self.wait_for("ended")
        assert self.process.wait() == 0
        return [said for said in self._said if said["what"] != "alive"]

    def kinds(self, *left_out: str) -> list[str]:
        kinds = [said["what"] for said in self.end()]
        return [kind for kind in kinds if kind not in ("started", "works", "pauses", *left_out)]

    @property
    def code(self) -> int:
        return int(self.wait_for("ended")["code"])


Supervise = Callable[..., Supervising]
