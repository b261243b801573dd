"""A hypothesis state machine: two or three machines at one mirror, requests in any order."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mirrored_run import DONE, Made, Mirrored, virtual
from promise import Broken, Promise
from shared_stores import KINDS, share
from virtual_machines import Machine, Process, World

FAULTS = ("fails", "lost", "late", "killed", "killed after", "torn")
MACHINES = 3
LEASE_SECONDS = 80
"""The longest duration of a lease in these stores."""
PATIENCE = 20_000
"""The turns of all threads in which undisturbed machines have to finish."""

number = st.integers(0, 7)
turns = st.integers(0, 60)


class AnyOrder(RuleBasedStateMachine):
    """The rules for what may happen to machines, after each of which every promise must hold."""

    made: ClassVar[Made]
    total: ClassVar[Counter[str]] = Counter()
    kinds: ClassVar[tuple[str, ...]] = KINDS

    @initialize(kind=st.integers(0, 99), then_delete=st.booleans(), machines=st.integers(2, 3))
    def begin(self, kind: int, then_delete: bool, machines: int) -> None:
        kind_name = self.kinds[kind % len(self.kinds)]
        self.stack = ExitStack()
        folder = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.stack.callback(shutil.rmtree, folder)
        self.folder, self.kind = Path(folder), kind_name
        self.world = World()
        self.store = share(kind_name, self.world, self.folder)
        self.promise = Promise(self.world, self.store, self.made.model)
        self.promise.watch()
        self.run = Mirrored(self.made, self.world, self.store, self.promise, then_delete)
        self.stack.enter_context(virtual(self.world, self.store, self.promise))
        self.machines = [self._machine(n) for n in range(machines)]
        self.world.log.append(f"{kind_name}, then_delete={then_delete}")

    def _machine(self, number: int) -> Machine:
        folder = self.folder / f"machine-{number}"
        folder.mkdir()
        return Machine(f"machine-{number}", folder)

    def _live(self) -> list[Process]:
        return [process for process in self.world.processes if process.alive]

    # What happens

    @rule(which=number, take_over=st.sampled_from([False, False, False, True]), turns=turns)
    def somebody_runs_it(self, which: int, take_over: bool, turns: int) -> None:
        machine = self.machines[which % len(self.machines)]
        if not any(process.machine is machine for process in self._live()):
            self.world.start(machine, self.run.work, take_over=take_over)
        self.one_machine_goes_on(which, turns)

    @rule(which=number, turns=turns)
    def one_thread_goes_on(self, which: int, turns: int) -> None:
        tasks = self.world.tasks()
        if tasks:
            task = tasks[which % len(tasks)]
            self._let(task.process, turns, [task])

    @rule(which=number, turns=turns)
    def one_machine_goes_on(self, which: int, turns: int) -> None:
        live = self._live()
        if live:
            self._let(live[which % len(live)], turns)

    def _let(self, process: Process, turns: int, tasks: list | None = None) -> None:
        for turn in range(turns):
            ready = [task for task in tasks or process.tasks if task.can_go_on()]
            if not ready:
                break
            ready[turn % len(ready)].go_on()
            self.promise.owners()
            if self.promise.broken:
                break

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0, 5.0, 15.0, 45.0, 100.0]), which=number)
    def time_passes(self, seconds: float, which: int) -> None:
        """Advance the time, and let one machine go on."""
        self.world.now += seconds
        self.one_machine_goes_on(which, 5)

    @rule(which=number, fault=st.sampled_from(FAULTS), turns=turns)
    def its_next_request_goes_wrong(self, which: int, fault: str, turns: int) -> None:
        live = self._live()
        if live:
            live[which % len(live)].fault = fault
        self.one_machine_goes_on(which, turns)

    @rule(which=number)
    def a_process_is_killed(self, which: int) -> None:
        live = self._live()
        if live and which < 4:
            self.world.kill(live[which % len(live)])

    @rule(which=number, disk=st.booleans())
    def a_machine_boots(self, which: int, disk: bool) -> None:
        """Boot a machine, with its disk or with an empty one."""
        machine = self.machines[which % len(self.machines)]
        for process in self._live():
            if process.machine is machine:
                self.world.kill(process)
        machine.boot += 1
        if not disk:
            shutil.rmtree(machine.folder)
            machine.folder.mkdir()

    @precondition(lambda self: self.world.late)
    @rule()
    def a_late_request_arrives(self) -> None:
        self.world.land()

    @rule(which=number, seconds=st.sampled_from([-7200.0, -30.0, 30.0, 7200.0]))
    def a_clock_moves(self, which: int, seconds: float) -> None:
        self.machines[which % len(self.machines)].ahead += seconds
        self.world.clocks_moved = True

    @rule(which=st.integers(0, 31), how=st.sampled_from(["removed", "cut", "changed"]))
    def a_file_is_damaged(self, which: int, how: str) -> None:
        names = sorted(name for name in self.store.names() if not name.endswith(".part"))
        if names and which < 8:  # one in four
            name = names[which % len(names)]
            data = self.store.read(name) or b""
            damaged = {"removed": None, "cut": data[: len(data) // 2], "changed": b"!" + data[1:]}
            self.world.log.append(f"{name} is {how}")
            self.promise.harm(name, damaged[how])

    # What has to hold

    @invariant()
    def every_promise_holds(self) -> None:
        self.promise.check()

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        try:
            self.promise.check()
            self._to_the_end()
            self.promise.check()
        finally:
            for process in self._live():
                self.world.kill(process)
            self.total["examples"] += 1
            self.total["requests"] += self.world.requests
            self.total["audits"] += self.promise.audits
            self.total[self.kind] += self.world.requests
            self.stack.close()

    def _to_the_end(self) -> None:
        """Let all processes end undisturbed, and check that one finishes the mirror."""
        for process in self._live():
            process.fault = ""
        self._wait_for_all()
        while self.world.late:
            self.world.land()
        if not self.promise.unhindered():
            return
        for machine in [*self.machines, self._machine(MACHINES), self._machine(MACHINES + 1)]:
            self.world.start(machine, self.run.work)
            self._wait_for_all()
        self.promise.check()
        if self.world.processes[-1].outcome != DONE:
            raise Broken("\n".join([*self.world.log[-40:], "nobody can finish it"]))
        self.promise.nothing_is_left_over()

    def _wait_for_all(self) -> None:
        for _ in range(PATIENCE):
            tasks = self.world.tasks()
            for task in tasks:
                if not task.ended:
                    task.go_on()
                    self.promise.owners()
            self.promise.check()
            if not self._live():
                return
            if not tasks:
                self.world.now += 1.0
            self.world.now += 0.01
        raise Broken("\n".join([*self.world.log[-40:], "it does not end"]))
