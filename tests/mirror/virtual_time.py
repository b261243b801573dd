"""A machine of which the test is one thread: its time passes where the test waits, and no other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from virtual_machines import Machine, Process, Threading, Time, World, clock_of

from resumerge.mirror.transfer import RateLimit

PATIENCE = 2_000
"""Turns of other threads in which what a test waits for has to happen, however long it takes."""


class VirtualTime(World):
    """The world of one process. Its other threads run while the test waits, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.process = Process(Machine("here", Path()), os.getpid(), boot=0)
        self.processes.append(self.process)

    @property
    def here(self) -> Process:
        return self.process

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> None:
        """Wait until something is true, or for some seconds."""
        if self.current is not None:
            super().wait(ready, seconds)
            return
        due = math.inf if seconds is None else self.now + seconds
        while not ready() and self.now < due:
            if tasks := self.tasks():
                self.turns += 1
                assert self.turns < PATIENCE, "what the test waits for does not happen"
                tasks[0].go_on()
                continue
            waiting = [task.due for task in self.process.tasks if not task.ended]
            self.now = min([due, *(time for time in waiting if time is not None)])
            assert self.now < math.inf, "what the test waits for does not happen"


@contextmanager
def virtual_time(*modules: object) -> Iterator[VirtualTime]:
    """Yield the time and threads that leases and replicators see in place of this process's.

    Args:
        modules: the modules of tests whose `time` is replaced as well.
    """
    world = VirtualTime()
    time, threading = Time(world), Threading(world)
    mirror = "resumerge.mirror"
    seen = {
        f"{mirror}.lease.threading": threading,
        f"{mirror}.lease.time": time,
        f"{mirror}.lease.clock": world.clock,
        f"{mirror}.lease.datetime": clock_of(world),
        f"{mirror}.lease_record.now": lambda: world.wall().isoformat(),
        f"{mirror}.retrying.clock": world.clock,
        f"{mirror}.replicator.threading": threading,
        f"{mirror}.replicator.time": time,
        f"{mirror}.transfer.time": time,
        "resumerge.retry.time": time,
        "made_up_leases.time": time,
        "waiting.time": time,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in seen.items():
            patch.setattr(name, value)
        patch.setattr(RateLimit.__init__, "__defaults__", (world.clock,))
        for module in modules:
            patch.setattr(module, "time", time, raising=False)
        yield world
        world.kill(world.process)
