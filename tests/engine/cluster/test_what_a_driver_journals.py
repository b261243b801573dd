"""Promise: a driver journals a shard that is where it should be, and compares what comes later."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shard_tasks import RECIPES, Shards
from tiny_models import LLAMA, write_family

from resumerge.engine.cluster import driver, running
from resumerge.engine.cluster.driver import Driver
from resumerge.engine.cluster.exchange import folder
from resumerge.engine.cluster.exchange.base import Beat
from resumerge.engine.cluster.exchange.folder import FolderExchange
from resumerge.engine.cluster.journal import ShardJournal
from resumerge.engine.cluster.machines import Machine
from resumerge.engine.cluster.outcomes import Finished, Node, Outcome
from resumerge.engine.cluster.task import ShardTask, run_task
from resumerge.engine.recovery.published import record_path
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import Resumable
from resumerge.options import Options
from resumerge.planning.plan import Shard
from resumerge.storage import Storage

STALLED = 100.0
NODE = Node("node", "host")
OTHER = bytes(16)
"""The hash of a block that no task computes."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


class Exchange(FolderExchange):
    """An exchange with the heartbeat of one task, which never changes."""

    beat_seconds = 0.0

    def beats(self, tasks: Collection[str]) -> Mapping[str, Beat]:
        return {task: Beat(NODE) for task in tasks if task == "shard0-1"}


class DriverSide:
    """The driver's side of a run whose shards are pending."""

    def __init__(self, shards: Shards, files: ShardFiles) -> None:
        context = SimpleNamespace(
            options=Options(stall_timeout=STALLED, threads=1),
            reporter=Reporter(),
            stop=StopRequest(),
            storage=Storage(),
            frees_shards=False,
            memory=None,
        )
        self.attempt = shards.ledger.attempts.start({"pid": 1, "host": "here", "boot_id": ""})
        self.context, self.plan, self.ledger, self.files = (
            context,
            shards.plan,
            shards.ledger,
            files,
        )
        self.budget = SimpleNamespace(memory=1 << 30)
        self.reader = SimpleNamespace(ranges=SimpleNamespace(count=lambda *moved: None))
        self.exchange = Exchange(self.plan, self.ledger, files, lambda: None)
        self.exchange.open(self.plan.shards)
        watch: Any = SimpleNamespace(check=lambda units: None, check_all=lambda: None)
        this: Any = self
        self.journal = ShardJournal(this, self.exchange, watch, self.ledger.units.progress())

    def sealed(self, number: int) -> None:
        pass

    def over(self, cluster: Any, pending: Sequence[int]) -> None:
        """Run the driver until all pending shards are done."""
        this: Any = self
        shards = [self.plan.shards[number] for number in pending]
        Driver(this, cluster, self.journal, self.exchange, shards).run()

    def hashes(self) -> list[bytes]:
        return [known.hashes for known in self.ledger.units.progress()]


@pytest.fixture
def shards(models: Path, tmp_path: Path) -> Shards:
    return Shards(models, RECIPES["copies"], tmp_path)


@pytest.fixture
def run(shards: Shards) -> Iterator[DriverSide]:
    with closing(ShardFiles(shards.plan, shards.out, Storage())) as files:
        yield DriverSide(shards, files)


def test_a_shard_that_is_not_there_is_not_journaled(
    shards: Shards, run: DriverSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has published the shard, and another program has moved it away."""
    monkeypatch.setattr(folder, "VISIBLE_SECONDS", 0.0)
    shard, finished = shards.plan.shards[1], shards.compute(1)
    path = shards.out / shard.name
    path.rename(path.with_name("elsewhere"))
    assert run.journal.commit(shard, finished, "t1") is False
    assert shard.name in shards.ledger.shards.open() and not any(run.hashes())
    path.with_name("elsewhere").rename(path)
    assert run.journal.commit(shard, finished, "t1") is True
    assert shard.name not in shards.ledger.shards.open()


def test_a_record_goes_once_the_ledger_has_what_it_says(
    shards: Shards, run: DriverSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record outlives a driver that is killed before the commit: the next driver adopts it."""
    shard, finished, gone = shards.plan.shards[1], shards.compute(1), list[str]()

    def journaled(task: str, of: Shard) -> None:
        assert shard.name not in shards.ledger.shards.open()
        gone.append(task)

    monkeypatch.setattr(run.exchange, "journaled", journaled)
    assert run.journal.commit(shard, finished, "t1") and gone == ["t1"]


def test_a_shard_has_its_name_once_its_record_is_there(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver can adopt every shard that has its name, because its record exists already."""
    rename, named = Storage.rename, list[str]()

    def watched(storage: Storage, source: Path, target: Path) -> None:
        if target.parent == shards.out:
            assert record_path(shards.attempt, 1).exists()
            named.append(target.name)
        rename(storage, source, target)

    monkeypatch.setattr(Storage, "rename", watched)
    shards.compute(1)
    (shards.out / shards.plan.shards[1].name).unlink()
    record_path(shards.attempt, 1).unlink()
    shards.compute(1)
    assert named == [shards.plan.shards[1].name] * 2


class Cluster:
    """A cluster whose first task ends after another task has computed its shard."""

    machines = (Machine(NODE.id, {"CPU": 4.0}),)

    def __init__(self, *, differs: bool) -> None:
        self.differs = differs
        self.now = 0.0
        self.tasks: list[ShardTask] = []
        self.ended = iter([2, 0, 1])
        self.of_first: Finished | None = None

    def answers(self) -> bool:
        return True

    def submit(self, task: ShardTask, request: object, avoid: object = ()) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def finished(self, running: Collection[int], seconds: float) -> list[int]:
        self.now += STALLED / 2
        return [next(self.ended)] if len(self.tasks) > 2 else []

    def outcome(self, future: int) -> Outcome:
        if future == 0:
            assert self.of_first is not None
            record = self.of_first.record
            first, *rest = record.units
            changed = replace(first, hashes=OTHER) if self.differs else first
            return replace(self.of_first, record=replace(record, units=(changed, *rest)))
        found = run_task(self.tasks[future], NODE, StopRequest())
        assert isinstance(found, Finished), found
        self.of_first = self.of_first or found
        return found

    def cancel(self, future: int) -> None:
        pass


@pytest.mark.parametrize("differs", [False, True])
def test_what_a_task_computed_that_was_given_up_is_compared(
    run: DriverSide, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that computes different bytes is found even if its task was given up."""
    cluster = Cluster(differs=differs)
    clock = SimpleNamespace(monotonic=lambda: cluster.now)
    for module in (driver, running):
        monkeypatch.setattr(module, "time", clock)
    if differs:
        with pytest.raises(Resumable) as stopped:
            run.over(cluster, [0, 1])
        assert stopped.value.reason == "hash_conflict" and OTHER.hex() in str(stopped.value)
        assert OTHER not in run.hashes(), "the first is kept"
    else:
        run.over(cluster, [0, 1])
    assert [task.id for task in cluster.tasks] == ["shard0-1", "shard1-1", "shard0-2"]


class Losing(Cluster):
    """A cluster whose first task ends first, and whose published shard is gone."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(differs=False)
        self.ended = iter([0, 2, 1])
        self.shards = shards

    def outcome(self, future: int) -> Outcome:
        if future != 0:
            return super().outcome(future)
        found = run_task(self.tasks[2], NODE, StopRequest())
        (self.shards.out / self.shards.plan.shards[0].name).unlink()
        return found


def test_what_was_given_up_and_is_not_there_is_not_done_once_more(
    shards: Shards, run: DriverSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task of the same shard is already running."""
    monkeypatch.setattr(folder, "VISIBLE_SECONDS", 0.0)
    cluster = Losing(shards)
    clock = SimpleNamespace(monotonic=lambda: cluster.now)
    for module in (driver, running):
        monkeypatch.setattr(module, "time", clock)
    run.over(cluster, [0, 1])
    assert [task.id for task in cluster.tasks] == ["shard0-1", "shard1-1", "shard0-2"]
    assert shards.plan.shards[0].name not in shards.ledger.shards.open()
