"""Promise: a shard that a task leaves in a bucket has a record, or belongs to another machine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bucket_in_memory import MemoryStore
from driver_bench import NODES, Bench, ComputedShards

from resumerge.engine.cluster.exchange import bucket_task
from resumerge.engine.cluster.exchange.base import Beat, TaskAbandoned
from resumerge.engine.cluster.exchange.bucket import BucketExchange
from resumerge.engine.cluster.exchange.bucket_task import BucketEndpoint, opening
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.recovery.uploaded import uploaded_record
from resumerge.engine.shards.shard_record import ShardRecord, Uploaded
from resumerge.errors import Reason, Resumable, StoreError
from resumerge.mirror.names import MANIFEST_FILE, TaskName, lease_name

NODE, TOKEN, NUMBER = NODES[0], 7, 1
NAME = TaskName(TOKEN, f"shard{NUMBER}-1")
BEAT = Beat(NODE, 3, 9, 5)


class Task:
    """A task that has computed the second shard, and a clock that moves while it waits."""

    def __init__(self, computed: ComputedShards, folder: Path, monkeypatch: Any) -> None:
        self.store = MemoryStore()
        self.there, self.requests = self.store.requests.there, self.store.requests
        self.plan = shard_plan(computed.shards.plan, NUMBER)
        [self.shard] = self.plan.shards
        self.record = computed.finished[NUMBER].record
        self.data = (computed.shards.out / self.shard.name).read_bytes()
        self.slept: list[float] = []
        self.moved: list[int] = []
        self.now = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(bucket_task, "time", clock)
        self.there[NAME.name] = opening("nonce")
        self.endpoint = self.endpoint_of(NAME)
        shutil.copyfile(computed.shards.out / self.shard.name, folder / self.shard.name)
        self.endpoint._folder = folder

    def endpoint_of(self, name: TaskName, rate: int | None = None) -> BucketEndpoint:
        found = BucketEndpoint(self.store.url, name, "nonce", rate, 60.0)
        vars(found)["_store"] = self.store
        return found

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def publish(self) -> ShardRecord:
        return self.endpoint.publish(self.plan, self.record, BEAT, self.moved.append)

    def uploaded(self, data: bytes | None = None) -> Uploaded:
        """Return what a record says of an uploaded file of these bytes, by default the shard's."""
        data = self.data if data is None else data
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return Uploaded(len(data), hashlib.sha256(data).hexdigest(), md5)

    def give_up(self) -> None:
        self.there.pop(NAME.name, None)


@pytest.fixture
def task(
    computed: ComputedShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Task]:
    found = Task(computed, tmp_path, monkeypatch)
    assert not found.store.lease_obstacle()
    yield found


def test_a_shard_is_uploaded_and_then_its_record(task: Task) -> None:
    expected = replace(task.record, uploaded=task.uploaded())
    task.requests.after = lambda: order.append("record" in json.loads(task.there[NAME.name]))
    order: list[bool] = []
    assert task.publish() == expected and order == [False]
    assert task.there.keys() == {NAME.name, task.shard.name}
    assert task.there[task.shard.name] == task.data and sum(task.moved) == len(task.data)
    told = json.loads(task.there[NAME.name])
    assert (told["task"], told["count"], told["nbytes"]) == ("nonce", 3, 5)
    assert uploaded_record(task.store, NAME) == expected


def test_a_shard_that_is_there_stays_and_is_compared(task: Task) -> None:
    task.there[task.shard.name] = task.data
    task.requests.before = lambda kind, name: uploads.append(name) if kind == "upload" else None
    uploads: list[str] = []
    assert task.publish().uploaded == task.uploaded() and not uploads
    other = task.data[:-1] + bytes([task.data[-1] ^ 1])
    task.there[task.shard.name] = other
    with pytest.raises(Resumable) as conflict:
        task.publish()
    assert conflict.value.reason == "hash_conflict" and task.there[task.shard.name] == other
    assert f"on {NODE}" in conflict.value.message
    task.there[task.shard.name] = task.data + b"more"
    with pytest.raises(Resumable, match="Another file has the name") as stopped:
        task.publish()
    assert stopped.value.reason == "mirror"


def test_a_shard_that_comes_between_two_looks_is_compared(task: Task) -> None:
    other = task.data[:-1] + bytes([task.data[-1] ^ 1])

    def meanwhile(kind: str, name: str) -> None:
        if kind == "upload":
            task.there[name] = other

    task.requests.before = meanwhile
    with pytest.raises(Resumable) as conflict:
        task.publish()
    assert conflict.value.reason == "hash_conflict" and task.there[task.shard.name] == other


def test_a_task_that_was_given_up_uploads_nothing(task: Task) -> None:
    task.give_up()
    requests: list[str] = []
    task.requests.before = lambda kind, name: requests.append(kind)
    with pytest.raises(TaskAbandoned):
        task.publish()
    assert "upload" not in requests
    assert task.there == {} and task.requests.abandoned == [task.shard.name]


@pytest.mark.parametrize("whose", ["", lease_name(1), MANIFEST_FILE])
@pytest.mark.parametrize("first", [False, True])
def test_what_a_task_uploaded_before_it_was_given_up_goes_if_it_is_nobodys(
    task: Task, whose: str, first: bool
) -> None:
    """Another task's shard stays, and so do parts that the owner of the lease may continue."""
    task.there |= {whose: b"{}"} if whose else {}
    if first:
        task.there[task.shard.name] = task.data

    def given_up(kind: str, name: str) -> None:
        looks = name == task.shard.name and kind == ("read" if first else "listed")
        if looks and name in task.there:
            task.give_up()

    task.requests.before = given_up
    with pytest.raises(TaskAbandoned):
        task.publish()
    stays = first or bool(whose)
    assert task.there.keys() == ({whose} - {""}) | ({task.shard.name} if stays else set())
    assert task.requests.abandoned == (
        [] if whose.startswith(".resumerge/lease") else [task.shard.name]
    )


def test_a_bucket_that_fails_for_a_moment_is_asked_again(task: Task) -> None:
    faults = iter(["put", "upload", "listed", "put"])
    wanted = [next(faults)]

    def fails(kind: str, name: str) -> None:
        if wanted[0] == kind:
            wanted[0] = next(faults, "")
            raise StoreError("for now")

    task.requests.before = fails
    assert task.publish().uploaded == task.uploaded()
    assert max(task.slept) <= 0.25 and task.moved.count(0) >= 4, "it looks around meanwhile"


@pytest.mark.parametrize(("denied", "patience"), [(True, 60.0), (False, 0.0)])
def test_a_bucket_that_fails_for_too_long_or_denies_it_stops_the_task(
    task: Task, denied: bool, patience: float
) -> None:
    def fails(kind: str, name: str) -> None:
        if kind == "upload":
            raise StoreError("no room", denied=denied)

    task.requests.before, task.endpoint.patience = fails, patience
    with pytest.raises(Resumable, match="s3://box/m cannot be used: no room") as stopped:
        task.publish()
    assert stopped.value.reason == "mirror"
    assert not (denied and task.slept), "waiting gives no rights"


def test_uploads_keep_to_their_rate(task: Task) -> None:
    folder = task.endpoint._folder
    task.endpoint = task.endpoint_of(NAME, rate=len(task.data))
    task.endpoint._folder = folder
    task.publish()
    assert sum(task.slept) == pytest.approx(1.0, abs=0.01)


def test_a_task_says_at_once_whether_it_reaches_the_bucket(task: Task) -> None:
    assert task.endpoint.obstacle(NODE) == ""
    assert Beat.of_bytes(task.there[NAME.name]) == Beat(NODE)

    def denies(kind: str, name: str) -> None:
        raise StoreError("access is denied", denied=True)

    task.requests.before = denies
    expected = "s3://box/m cannot be used from here: access is denied"
    assert task.endpoint.obstacle(NODE) == expected
    task.requests.before = lambda kind, name: None
    task.give_up()
    assert task.endpoint_of(NAME).obstacle(NODE) == "", "the task itself finds that out"


def test_a_heartbeat_replaces_what_the_task_wrote_last(task: Task) -> None:
    puts: list[str] = []
    task.requests.before = lambda kind, name: puts.append(name) if kind == "put" else None
    task.endpoint.beat(Beat(NODE, 1))
    task.endpoint.beat(Beat(NODE, 2))
    assert puts == [NAME.name] * 2, "each request costs money"
    assert Beat.of_bytes(task.there[NAME.name]) == Beat(NODE, 2)
    task.there[NAME.name] = opening("of another task")
    with pytest.raises(TaskAbandoned):
        task.endpoint.beat(Beat(NODE, 3))
    assert task.there[NAME.name] == opening("of another task")


# The driver's side


class Replicates:
    """The part of the replicator that the driver uses."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.options = SimpleNamespace(rate=77, stall_seconds=60.0)
        self.calls: list[object] = []
        self.lost = False

    def uploaded(self, names: Any) -> None:
        self.calls.append([*names])

    def wait_for_snapshot(self, check: object) -> None:
        self.calls.append("snapshot")

    def check_lease(self) -> None:
        self.calls.append("lease")
        if self.lost:
            raise Resumable(Reason.MIRROR_TAKEN_OVER, "Another machine")

    check = check_lease


class DriverThere:
    def __init__(self, bench: Bench) -> None:
        self.store = MemoryStore()
        self.there = self.store.requests.there
        self.replicates, self.bench = Replicates(), bench
        bench.ledger.set_mirror(self.store.url)
        self.mirror = SimpleNamespace(
            store=self.store, url=self.store.url, moved=lambda nbytes: None
        )
        given: Any = (bench.plan, bench.ledger, bench.files, self.mirror, self.replicates)
        self.exchange = BucketExchange(*given, lambda: None)

    def uploads(self, number: int, task: str) -> ShardRecord:
        shards, name = self.bench.computed.shards, self.bench.plan.shards[number].name
        self.there[name] = data = (shards.out / name).read_bytes()
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        uploaded = Uploaded(len(data), hashlib.sha256(data).hexdigest(), md5)
        record = replace(self.bench.computed.finished[number].record, uploaded=uploaded)
        told = {"task": "x", **BEAT.as_json(), "record": record.as_json()}
        self.there[TaskName(TOKEN, task).name] = json.dumps(told).encode()
        return record


@pytest.fixture
def there(bench: Bench) -> DriverThere:
    return DriverThere(bench)


def test_shards_that_no_snapshot_names_go_before_any_task_and_files_of_others_stay(
    there: DriverThere,
) -> None:
    first, second, third, *_ = there.bench.plan.shards
    there.there |= {
        first.name: bytes(first.nbytes),
        second.name: b"another",
        third.name: bytes(third.nbytes),
        "notes.txt": b"mine",
    }

    def snapshot(check: object) -> None:
        assert first.name in there.there
        there.replicates.calls.append("snapshot")

    there.replicates.wait_for_snapshot = snapshot  # type: ignore[method-assign]
    there.exchange.open([first, second])
    assert there.replicates.calls[0] == "snapshot" and "lease" in there.replicates.calls
    kept = f"{second.name}.kept"
    assert there.there == {
        kept: b"another",
        third.name: bytes(third.nbytes),
        "notes.txt": b"mine",
    }
    [(kind, data)] = there.bench.events()
    told = {"name": second.name, "now": kept, "mirror": "s3://box/m"}
    assert (kind, data) == ("file_set_aside", told)


def test_each_task_has_an_object_of_its_own(there: DriverThere) -> None:
    shard = there.bench.plan.shards[0]
    one, other = (there.exchange.endpoint(f"shard0-{n}", shard) for n in (1, 2))
    assert isinstance(one, BucketEndpoint) and isinstance(other, BucketEndpoint)
    assert one.nonce != other.nonce and one.object == TaskName(TOKEN, "shard0-1")
    assert (one.url, one.rate, one.patience) == ("s3://box/m", 77, 60.0)
    assert there.there == {each.object.name: opening(each.nonce) for each in (one, other)}
    assert there.exchange.patience == 60.0
    there.exchange.give_up("shard0-2")
    assert there.there.keys() == {one.object.name}


def test_heartbeats_and_records_are_read_of_the_tasks_that_are_asked_for(
    there: DriverThere,
) -> None:
    shard = there.bench.plan.shards[NUMBER]
    assert there.exchange.beats([]) == {} and there.exchange.record(NAME.task, shard) is None
    there.there[TaskName(TOKEN, "shard0-1").name] = opening("no heartbeat yet")
    there.there[TaskName(TOKEN - 1, "shard2-1").name] = b"of another driver"
    record = there.uploads(NUMBER, NAME.task)
    assert there.exchange.beats(["shard0-1", NAME.task, "shard2-1"]) == {NAME.task: BEAT}
    assert there.exchange.record(NAME.task, shard) == record
    assert there.exchange.record("shard0-1", there.bench.plan.shards[0]) is None
    assert there.exchange.has(shard, record)
    there.there[shard.name] = bytes(len(there.there[shard.name]))
    assert not there.exchange.has(shard, record)
    there.exchange.journaled(NAME.task, shard)
    assert there.replicates.calls[-1] == [NAME.name]


def test_what_was_uploaded_is_adopted_by_whoever_has_the_lease(there: DriverThere) -> None:
    there.uploads(NUMBER, NAME.task)
    there.replicates.lost = True
    assert there.exchange.adopt() == [] and not there.bench.is_sealed(NUMBER)
    there.replicates.lost = False
    assert there.exchange.adopt() == [NUMBER] and there.bench.is_sealed(NUMBER)
    assert there.replicates.calls[-1] == [NAME.name]
    assert there.bench.ledger.mirrored.checksums().keys() == {there.bench.plan.shards[NUMBER].name}


def test_a_driver_that_has_lost_the_lease_changes_nothing(there: DriverThere) -> None:
    shards = there.bench.plan.shards
    there.there[shards[0].name] = bytes(shards[0].nbytes)
    before = dict(there.there)
    there.replicates.lost = True
    for change in (
        lambda: there.exchange.endpoint("shard0-1", shards[0]),
        lambda: there.exchange.open(shards),
        there.exchange.check,
    ):
        with pytest.raises(Resumable, match="Another machine"):
            change()
    assert there.there == before


def test_a_bucket_that_denies_the_driver_stops_the_run(there: DriverThere) -> None:
    def denies(kind: str, name: str) -> None:
        raise StoreError("access is denied", denied=True)

    there.store.requests.before = denies
    with pytest.raises(Resumable, match="access is denied") as stopped:
        there.exchange.endpoint("shard0-1", there.bench.plan.shards[0])
    assert stopped.value.reason == Reason.MIRROR
    assert str(stopped.value).startswith("The mirror cannot be used\n  where:    s3://box/m\n")
    there.exchange.give_up("shard0-1")  # the object goes with all others at the end
