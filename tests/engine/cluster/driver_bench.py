"""A driver on a cluster that a test directs, with the run's own plan, ledger and folders."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from merging import Told
from shard_tasks import Shards

from resumerge.engine.cluster import driver, running
from resumerge.engine.cluster.driver import Driver
from resumerge.engine.cluster.exchange.base import Beat
from resumerge.engine.cluster.exchange.folder import FolderEndpoint, FolderExchange
from resumerge.engine.cluster.journal import ShardJournal
from resumerge.engine.cluster.machines import Machine, TaskRequest
from resumerge.engine.cluster.outcomes import Failed, Finished, Node, Outcome
from resumerge.engine.cluster.running import RunningTask
from resumerge.engine.cluster.task import ShardTask
from resumerge.engine.recovery.published import write_record
from resumerge.engine.reporter import ProgressUpdate
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import TASKS, ShardFiles
from resumerge.errors import Reason
from resumerge.ledger import Ledger
from resumerge.options import Options
from resumerge.planning.plan import Shard, Unit
from resumerge.storage import Storage

NODES = [Node(name, f"host-{name}") for name in "abc"]
MACHINES = [Machine(node.id, {"CPU": 4.0, "memory": 8e9}) for node in NODES]
LIMIT = 100.0
"""Seconds without a heartbeat after which a task is given up."""


class ComputedShards:
    """A run whose shards were computed once, for drivers of runs that are copies of it."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.finished = [shards.compute(shard.number) for shard in shards.plan.shards]

    def again(self, folder: Path) -> Shards:
        """Copy the run to another folder, where none of its shards exists yet."""
        found = copy.copy(self.shards)
        path = self.shards.ledger.path
        shutil.copytree(path.parent, folder / "state")
        found.ledger = Ledger(folder / "state" / path.name)
        found.out = folder / "out"
        found.attempt = found.out / TASKS / self.shards.attempt.name
        found.attempt.mkdir(parents=True)
        return found


class Moved:
    """A counter of the bytes and requests of tasks."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def count(self, nbytes: int, requests: int) -> None:
        self.told.append((nbytes, requests))


class Progressed(Told):
    """A reporter that also keeps all progress updates."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: list[ProgressUpdate] = []

    def progressed(self, progressed: ProgressUpdate) -> None:
        self.progress.append(progressed)


class Watch:
    """A record of the units whose sources are checked."""

    def __init__(self) -> None:
        self.units: list[str] = []
        self.looked_at_all = 0

    def check(self, units: Sequence[Unit]) -> None:
        self.units += [unit.name for unit in units]

    def check_all(self) -> None:
        self.looked_at_all += 1


Make = Callable[..., "Bench"]
Turn = Callable[[], Collection[int]]
"""An action while the driver waits; it returns the numbers of the submitted tasks that end."""


def _computes_nothing(task: ShardTask, *given: object) -> Outcome:
    raise AssertionError(f"the driver computes {task.id} itself")


class Bench:
    """The driver's side of a run, a cluster, and a clock.

    Attributes:
        alive: the machines that the head lists.
        submitted: the tasks, each with its request and the machines that it must avoid.
        outcomes: the outcome of each task that has ended.
        turns: the actions while the driver waits, one for each wait.
    """

    def __init__(
        self, computed: ComputedShards, folder: Path, monkeypatch: pytest.MonkeyPatch, **of: Any
    ) -> None:
        self.shards, self.computed = computed.again(folder), computed
        self.plan, self.ledger = self.shards.plan, self.shards.ledger
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in (driver, running):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(driver, "RunningTask", self._running)
        monkeypatch.setattr(driver, "run_task", _computes_nothing)
        self.reporter, self.stop, self.moved = Progressed(), StopRequest(), Moved()
        self.context = SimpleNamespace(
            options=Options(**{"stall_timeout": LIMIT, "threads": 1, **of}),
            reporter=self.reporter,
            stop=self.stop,
            storage=Storage(),
            frees_shards=False,
            memory=3_000_000_000,
        )
        self.attempt = self.ledger.attempts.start({"pid": 1, "host": "here", "boot_id": ""})
        self.files = ShardFiles(self.plan, self.shards.out, Storage())
        self.budget = SimpleNamespace(memory=1 << 30, threads=2)
        self.reader = SimpleNamespace(ranges=self.moved)
        self.exchange = FolderExchange(self.plan, self.ledger, self.files, lambda: None)
        monkeypatch.setattr(FolderExchange, "beat_seconds", 0.0)
        self.exchange.open(self.plan.shards)
        self.watch = Watch()
        self.announced: list[int] = []
        self.journal = ShardJournal(
            self,  # type: ignore[arg-type]
            self.exchange,
            self.watch,  # type: ignore[arg-type]
            self.ledger.units.progress(),
        )
        self._before = len(self.ledger.events.all())
        # The cluster
        self.alive: Sequence[Machine] = MACHINES
        self.machines: Sequence[Machine] = ()
        self.is_lost = False
        self.answering = True
        self.submitted: list[tuple[ShardTask, TaskRequest, set[str]]] = []
        self.cancelled: list[int] = []
        self.outcomes: dict[int, Outcome] = {}
        self.turns: list[Turn] = []

    def _running(self, task: ShardTask, shard: Shard, request: TaskRequest) -> RunningTask:
        return RunningTask(task, shard, request, changed=self.now, fitted=self.now)

    # The methods of a computation and of a cluster that the driver calls

    def sealed(self, number: int) -> None:
        self.announced.append(number)

    def answers(self) -> bool:
        if self.answering:
            self.machines = self.alive
        return self.answering

    def submit(self, task: ShardTask, request: TaskRequest, avoid: Collection[str] = ()) -> int:
        self.submitted.append((task, request, set(avoid)))
        return len(self.submitted) - 1

    def finished(self, tasks: Collection[int], seconds: float) -> Collection[int]:
        assert self.turns, f"the driver waits for {[self.submitted[n][0].id for n in tasks]}"
        return self.turns.pop(0)()

    def outcome(self, future: int) -> Outcome:
        return self.outcomes[future]

    def cancel(self, future: int) -> None:
        self.cancelled.append(future)

    # The methods that a test calls

    def over(self, *numbers: int) -> None:
        """Run the driver until these shards are done."""
        pending = [self.plan.shards[number] for number in numbers]
        this: Any = self
        Driver(this, this, self.journal, self.exchange, pending).run()

    def publishes(self, number: int, node: Node = NODES[0], **changes: Any) -> Finished:
        """Give a shard its final name, and write its record."""
        shard, record = self.plan.shards[number], self.computed.finished[number].record
        path = self.files.final(shard)
        path.parent.mkdir(exist_ok=True)
        shutil.copyfile(self.computed.shards.out / shard.name, path)
        folder = self.endpoint_of(0).folder if self.submitted else self.shards.attempt
        write_record(folder, number, record, Storage())
        facts = {"bytes_received": 0, "requests": 0, **changes}
        return Finished(node, record, shard.nbytes, 1.5, 77, **facts)

    def endpoint_of(self, future: int) -> FolderEndpoint:
        endpoint = self.submitted[future][0].endpoint
        assert isinstance(endpoint, FolderEndpoint)
        return endpoint

    def ends(self, future: int, outcome: Outcome | None = None, seconds: float = 0.0) -> Turn:
        """Return a turn in which a task ends, by default with its shard."""

        def turn() -> Collection[int]:
            self.now += seconds
            task = self.submitted[future][0]
            self.outcomes[future] = outcome or self.publishes(task.shard)
            return [future]

        return turn

    def fails(self, future: int, node: Node | None, reason: str = "lost") -> Turn:
        """Return a turn in which a task fails."""
        return self.ends(future, Failed(node, Reason(reason), "it failed"))

    def beats(self, future: int, beat: Beat | None = None, seconds: float = 0.0) -> Turn:
        """Return a turn in which a task writes a heartbeat; no task does if it is None."""

        def turn() -> Collection[int]:
            self.now += seconds
            if beat is not None:
                endpoint = self.endpoint_of(future)
                endpoint.own_folder.mkdir(exist_ok=True)
                endpoint.beat(beat)
            return []

        return turn

    def waits(self, seconds: float) -> Turn:
        return self.beats(0, None, seconds)

    def ids(self) -> list[str]:
        return [task.id for task, _, _ in self.submitted]

    def events(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the kind and data of each event since the driver began."""
        return [
            (event["kind"], event["data"]) for event in self.ledger.events.all()[self._before :]
        ]

    def is_sealed(self, number: int) -> bool:
        return self.plan.shards[number].name not in self.ledger.shards.open()
