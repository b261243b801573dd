"""Promise: a task whose heartbeat changes is at work; no task is late while none can be read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from resumerge.engine.cluster import running
from resumerge.engine.cluster.exchange.base import Beat, TaskAbandoned
from resumerge.engine.cluster.exchange.bucket_task import BucketEndpoint, opening
from resumerge.engine.cluster.outcomes import Failed, Node
from resumerge.engine.cluster.retries import Tries
from resumerge.engine.cluster.running import Heartbeats, RunningTask
from resumerge.errors import Reason, Resumable, StoreError
from resumerge.mirror.names import TaskName

PATIENCE = 60.0
NODE = Node("node", "host")


class Denied(OSError):
    """An error of a store that denies access for good."""

    denied = True


class Exchange:
    """An exchange with the heartbeats that a test sets, or with an error."""

    patience = PATIENCE

    def __init__(self) -> None:
        self.told: dict[str, Beat] = {}
        self.error: OSError | None = None

    def beats(self, tasks: list[str]) -> dict[str, Beat]:
        if self.error:
            raise self.error
        return {task: beat for task, beat in self.told.items() if task in tasks}


class Bench:
    """Two tasks, their heartbeats, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.exchange: Any = Exchange()
        self.heartbeats = Heartbeats(self.exchange)
        self.tasks = [self._task(name) for name in ("one", "other")]

    def _task(self, name: str) -> RunningTask:
        task: Any = SimpleNamespace(id=name)
        none: Any = None
        return RunningTask(task, none, none, changed=self.now, fitted=self.now)

    def heard(self, seconds: float) -> list[str]:
        """Advance the clock, and return the tasks whose heartbeats have changed."""
        self.now += seconds
        return [task.task.id for task in self.heartbeats.read(self.tasks)]

    def silent(self) -> list[float]:
        """Return the seconds for which each task has been silent."""
        return [self.now - task.changed for task in self.tasks]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_task_is_heard_of_when_its_heartbeat_changes(bench: Bench) -> None:
    assert bench.heard(5) == [] and bench.silent() == [5, 5]
    bench.exchange.told["one"] = Beat(NODE, 1)
    assert bench.heard(5) == ["one"] and bench.silent() == [0, 10]
    assert bench.heard(5) == [], "it is the same"
    bench.exchange.told["one"] = Beat(NODE, 2)
    assert bench.heard(5) == ["one"] and bench.silent() == [0, 20]
    assert bench.tasks[0].beat == Beat(NODE, 2)


def test_none_is_late_while_none_can_be_heard(bench: Bench) -> None:
    bench.exchange.error = OSError("for now")
    assert bench.heard(PATIENCE) == [] and bench.silent() == [0, 0]
    with pytest.raises(Resumable, match="cannot be read: for now"):
        bench.heard(1)


def test_patience_begins_anew_with_each_answer(bench: Bench) -> None:
    assert bench.heard(PATIENCE) == []
    bench.exchange.error = OSError("for now")
    assert bench.heard(PATIENCE) == []


def test_who_is_denied_waits_no_longer(bench: Bench) -> None:
    bench.exchange.error = Denied("no right to read")
    with pytest.raises(Resumable, match="no right to read"):
        bench.heard(1)


def test_the_last_heartbeat_of_a_task_is_known_where_none_can_be_read(bench: Bench) -> None:
    [task, _] = bench.tasks
    assert bench.heartbeats.last(task) is None
    bench.exchange.told["one"] = Beat(NODE, 1)
    assert bench.heartbeats.last(task) == Beat(NODE, 1)
    bench.exchange.told.clear()
    assert bench.heartbeats.last(task) == Beat(NODE, 1)
    bench.exchange.error = OSError("for now")
    assert bench.heartbeats.last(task) == Beat(NODE, 1)


class OneObject:
    """A bucket with the object of one task, whose responses may be lost."""

    def __init__(self) -> None:
        self.there: bytes | None = opening("nonce")
        self.loses = 0

    def put_if_unchanged(self, name: str, data: bytes, before: bytes) -> bool:
        if self.there not in (data, before):
            return False
        self.there = data
        self.loses -= 1
        if self.loses >= 0:
            raise StoreError("the answer was lost")
        return True


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_task_goes_on_though_answers_to_its_heartbeats_are_lost(lost: int) -> None:
    """A task recognises its own object, and ends if there is none."""
    endpoint = BucketEndpoint("s3://box/m", TaskName(1, "shard0-1"), "nonce", None, PATIENCE)
    bucket: Any = OneObject()
    vars(endpoint)["_store"] = bucket
    bucket.loses = lost
    for count in range(1, 5):
        endpoint.beat(Beat(NODE, count))
    assert json.loads(bucket.there)["count"] == 4
    bucket.there = None
    with pytest.raises(TaskAbandoned):
        endpoint.beat(Beat(NODE, 5))


def test_a_machine_where_a_task_failed_is_avoided_as_long_as_there_is_another() -> None:
    tries = Tries(nodes={"a", "b"})
    assert tries.avoided({"a", "b", "c"}) == {"a", "b"}
    assert tries.avoided({"a"}) == tries.avoided(set()) == set()


def test_a_task_that_was_never_heard_of_leaves_the_lowered_memory_as_it_is() -> None:
    tries = Tries()
    tries.record_failure(Failed(None, Reason.OOM, ""), "a", 1000)
    tries.record_failure(Failed(None, Reason.OOM, ""), "b", 0)
    assert tries.memory == 500
