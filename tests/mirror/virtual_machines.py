"""Machines whose threads run one at a time, and hand over at every request to a store.

Time is virtual: it passes when a test says so. A thread that sleeps or waits is *ready* when its
time has come or what it waits for is true; which ready thread goes on is the test's choice. So a
thread that is not chosen is a machine that was suspended in a request, for as long as
the test likes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

STUCK_SECONDS = 60


class Killed(BaseException):
    """The exception that unwinds the threads of a killed process, which do nothing more."""


@dataclass
class Machine:
    """A machine with a disk and clocks of its own.

    Args:
        folder: its disk.
        boot: the number of its boots.
        ahead: seconds that its wall clock is ahead of the world's.
    """

    name: str
    folder: Path
    boot: int = 0
    ahead: float = 0.0

    @property
    def ledger(self) -> Path:
        return self.folder / "run" / "ledger.db"

    @property
    def out(self) -> Path:
        return self.folder / "out"


@dataclass
class Process:
    """A process of a machine.

    Args:
        boot: the machine's `boot` when the process began.
        fault: what goes wrong with its next request, see `World.request`.
        outcome: how it ended; empty while it lives.
        token: its fencing token, 0 while it has none.
    """

    machine: Machine
    pid: int
    boot: int
    fault: str = ""
    outcome: str = ""
    dead: bool = False
    take_over: bool = False
    token: int = 0
    tasks: list[Task] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return not self.dead and not self.outcome


class Task:
    """A thread of a process."""

    def __init__(
        self, world: World, process: Process, do: Callable[[], None], name: str | None = None
    ) -> None:
        self.process, self.ended = process, False
        self.ready: Callable[[], bool] = lambda: True
        self.due: float | None = None
        self._world, self._do = world, do
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        process.tasks.append(self)
        self._thread.start()

    def can_go_on(self) -> bool:
        due = self.due is not None and self._world.now >= self.due
        return not self.ended and (due or self.ready())

    def go_on(self) -> None:
        """Let the thread run until it hands over. The test calls this."""
        self._world.current = self
        self._turn.release()
        assert self._world.turn.acquire(timeout=STUCK_SECONDS), "a thread does not hand over"
        self._world.current = None

    def hand_over(self) -> None:
        """Let the test choose which thread goes on. The thread itself calls this."""
        self._world.turn.release()
        self._turn.acquire()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.process.dead:
                self._do()
        except Killed:
            pass
        finally:
            self.ended = True
            self._world.turn.release()


class World:
    """All machines, and what they share: time, and the requests that are under way.

    Attributes:
        changed: called after each request that may have changed the store, with the process and the
            names of the files.
        late: requests that were sent, gave no answer, and will be done some time.
        requests: how many were sent.
        landing: whether one that is late is being done.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._epoch = datetime.now(UTC)
        self.current: Task | None = None
        self.turn = threading.Semaphore(0)
        self.processes: list[Process] = []
        self.changed: Callable[[Process | None, tuple[str, ...]], None] = lambda process, names: (
            None
        )
        self.late: list[tuple[Process, tuple[str, ...], Callable[[], object]]] = []
        self.requests = 0
        self.clocks_moved = self.landing = False
        self._numbers = itertools.count(1)
        self.log: list[str] = []

    # Processes

    def start(self, machine: Machine, do: Callable[[Process], str], **facts: Any) -> Process:
        """Start a process of a machine, which does something and ends with its outcome."""
        process = Process(machine, 1000 + next(self._numbers), machine.boot, **facts)
        self.processes.append(process)

        def work() -> None:
            process.outcome = do(process)

        Task(self, process, work)
        return process

    def kill(self, process: Process) -> None:
        """End a process at once; its threads unwind without another request."""
        process.dead = True
        for task in process.tasks:
            while not task.ended:
                task.go_on()

    def tasks(self) -> list[Task]:
        """Return the threads that can go on."""
        tasks = [task for process in self.processes for task in process.tasks]
        return [task for task in tasks if task.can_go_on()]

    # What its threads do

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> None:
        """Wait until something is true, or for some seconds."""
        task = self.current
        if task is None:
            return
        if task.process.dead:
            raise Killed
        task.ready = ready
        task.due = None if seconds is None else self.now + seconds
        task.hand_over()
        task.ready, task.due = lambda: True, None
        if task.process.dead:
            raise Killed

    def request(
        self,
        what: str,
        do: Callable[[], Any],
        *,
        fails: Callable[[str], Exception],
        changes: tuple[str, ...] = (),
        torn: Callable[[], Any] | None = None,
        can_be_late: bool = True,
    ) -> Any:
        """Send a request to a store: hand over, then do it, unless the process has a fault.

        The faults: ``fails``; ``lost`` (done, and the answer is an error); ``late`` (an error,
        and it is done later); ``killed`` (before it); ``killed after``; ``torn`` (half of it is
        done, and the process is killed).

        Args:
            fails: makes the error for a fault.
            changes: names of the files that it may change.
            torn: does half of it.
            can_be_late: the store may do it although the process has given up.
        """
        task = self.current
        if task is None:
            return do()
        process = task.process
        self.wait(lambda: True, None)
        self.requests += 1
        fault, process.fault = process.fault, ""
        self.log.append(f"{self.now:.1f} {process.machine.name} {process.token} {what} {fault}")
        if fault == "fails":
            raise fails("failed")
        if fault == "late" and changes and can_be_late:
            self.late.append((process, changes, do))
            raise fails("gave no answer")
        if fault == "killed":
            self._die(process)
        if fault == "torn" and torn is not None:
            self._do(process, torn, changes)
            self._die(process)
        done = self._do(process, do, changes)
        if fault in ("killed after", "torn"):
            self._die(process)
        if fault in ("lost", "late"):
            raise fails("gave no answer")
        return done

    def land(self) -> None:
        """Do the oldest request that is late."""
        self.landing = True
        process, changes, do = self.late.pop(0)
        self.log.append(f"{self.now:.1f} {process.machine.name} lands {changes}")
        try:
            do()
        except Exception as error:  # a condition that is not met any more
            self.log.append(f"... {error!r}")
        self.changed(process, changes)
        self.landing = False

    def _do(self, process: Process, do: Callable[[], Any], changes: tuple[str, ...]) -> Any:
        task, self.current = self.current, None
        try:
            return do()
        finally:
            if changes:
                self.changed(process, changes)
            self.current = task

    def _die(self, process: Process) -> None:
        process.dead = True
        raise Killed

    # What modules of the program see in place of the machine

    @property
    def here(self) -> Process:
        """The process whose thread runs."""
        assert self.current is not None
        return self.current.process

    def clock(self) -> float:
        """Return the seconds since the machine's boot."""
        return self.now + (1000.0 * self.here.machine.boot if self.current else 0.0)

    def wall(self) -> datetime:
        """Return the time by the machine's wall clock, or by the world's if no thread runs."""
        ahead = self.here.machine.ahead if self.current else 0.0
        return self._epoch + timedelta(seconds=self.now + ahead)

    def birth(self, pid: int) -> int | None:
        """Return a number for a process's start, as `resumerge.host.processes.birth` does."""
        machine = self.here.machine
        there = (
            process.alive and process.machine is machine and process.boot == machine.boot
            for process in self.processes
            if process.pid == pid
        )
        return pid if any(there) else None

    def random(self, nbytes: int) -> str:
        """Return a new token, as `secrets.token_hex` does."""
        return f"{next(self._numbers):0{2 * nbytes}x}"


class Threading:
    """The part of the module `threading` that the program uses."""

    def __init__(self, world: World) -> None:
        self._world = world

    def Lock(self) -> Lock:
        return Lock(self._world)

    def Event(self) -> Event:
        return Event(self._world)

    def Condition(self) -> Condition:
        return Condition(self._world)

    def Thread(self, target: Callable[[], None], name: str | None = None, **facts: Any) -> Thread:
        return Thread(self._world, target, name)


class Lock:
    def __init__(self, world: World) -> None:
        self._world, self.held = world, False

    def __enter__(self) -> None:
        while self.held:
            self._world.wait(lambda: not self.held, None)
        self.held = True

    def __exit__(self, *error: object) -> None:
        self.held = False


class Condition(Lock):
    def notify_all(self) -> None:
        """Do nothing: a thread that waits tests its condition all the time."""

    def wait_for(self, ready: Callable[[], Any], seconds: float | None = None) -> None:
        if not ready():
            self.held = False
            try:
                self._world.wait(lambda: not self.held and bool(ready()), seconds)
            finally:
                self.__enter__()


class Event:
    def __init__(self, world: World) -> None:
        self._world, self._set = world, False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, seconds: float | None = None) -> bool:
        if not self._set:
            self._world.wait(self.is_set, seconds)
        return self._set


class Thread:
    def __init__(self, world: World, target: Callable[[], None], name: str | None = None) -> None:
        self._world, self._target, self._name = world, target, name
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def start(self) -> None:
        self._task = Task(self._world, self._world.here, self._target, self._name)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, seconds: float | None = None) -> None:
        if self.is_alive():
            self._world.wait(lambda: not self.is_alive(), seconds)


class Time:
    """The part of the module `time` that the program uses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.monotonic = world.clock

    def sleep(self, seconds: float) -> None:
        self._world.wait(lambda: False, seconds)


def clock_of(world: World) -> type:
    """Return a class with what the program uses of `datetime`."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return world.wall()

    return Clock
