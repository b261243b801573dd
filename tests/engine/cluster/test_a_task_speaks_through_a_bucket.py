"""Promise: a task that shares only a bucket with its driver knows when it is given up, and leaves
nothing then; what it put there is journaled only if it is what its record says."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loopback_clouds import Container
from loopback_s3 import Bucket, Proxy, Server, before, start
from loopback_s3.servers import SECRET
from test_a_shard_is_a_merge_of_its_own import RECIPES, Shards
from tiny_models import LLAMA, write_family

from resumerge.engine.cluster.exchange import bucket_task
from resumerge.engine.cluster.exchange.base import Beat
from resumerge.engine.cluster.exchange.bucket import BucketExchange
from resumerge.engine.cluster.exchange.bucket_task import BucketEndpoint, opening
from resumerge.engine.cluster.outcomes import Failed, Finished, Node, Outcome
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.cluster.task import ShardTask, run_task
from resumerge.engine.cluster.versions import Versions
from resumerge.engine.recovery.uploaded import adopt_uploaded
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import Resumable
from resumerge.mirror import ReplicationOptions, Replicator
from resumerge.mirror.lease import Lease
from resumerge.mirror.names import MANIFEST_FILE, TaskName, lease_name
from resumerge.mirror.stores.base import Moved
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.storage import Storage

TOKEN = 7


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with start("moto") as server:
        yield server


@pytest.fixture
def proxy(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with before(s3.endpoint) as proxy:
        for name, value in s3.env(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield proxy


class InBucket:
    """A run whose tasks put their shards into a bucket."""

    def __init__(self, shards: Shards, bucket: Bucket | Container) -> None:
        self.shards, self.bucket = shards, bucket
        store = open_store(f"{bucket.url}/m")
        assert isinstance(store, BucketStore)
        self.store = store
        shards.ledger.set_mirror(store.url)

    def task(self, number: int, attempt: int = 1) -> ShardTask:
        """A task as it is sent to a machine."""
        plan = shard_plan(self.shards.plan, number)
        name = TaskName(TOKEN, f"shard{number}-{attempt}")
        self.store.put({name.name: opening("nonce")})
        task = ShardTask(
            name.task,
            number,
            self.shards.plan.shards[number].first,
            BucketEndpoint(self.store.url, name, "nonce", None, 60.0),
            self.shards.fingerprint,
            Versions.of_plan(plan),
            pickle.dumps(plan),
            Options(threads=1),
        )
        sent = pickle.dumps(task)
        assert SECRET.encode() not in sent
        return pickle.loads(sent)  # type: ignore[no-any-return]

    def run(self, task: ShardTask) -> Outcome:
        return run_task(task, Node("", "here"), StopRequest())

    def compute(self, number: int, attempt: int = 1) -> Finished:
        outcome = self.run(self.task(number, attempt))
        assert isinstance(outcome, Finished), outcome
        return outcome

    def name(self, number: int) -> str:
        return self.shards.plan.shards[number].name

    def there(self) -> dict[str, bytes]:
        return self.bucket.contents("m/")

    def tasks(self) -> list[str]:
        return sorted(name for name in self.there() if "/task-" in name)

    def give_up(self, number: int) -> None:
        self.store.put({}, [name for name in self.tasks() if f"shard{number}-" in name])

    def adopt(self, token: int = TOKEN) -> list[int]:
        return self.adopt_and_tidy(token)[0]

    def adopt_and_tidy(
        self, token: int = TOKEN, check_lease: Callable[[], None] = lambda: None
    ) -> tuple[list[int], list[str]]:
        shards = self.shards
        with closing(ShardFiles(shards.plan, shards.out, Storage())) as files:
            parts = (shards.plan, shards.ledger, files, self.store, token)
            return adopt_uploaded(*parts, check_lease)

    def change_record(self, number: int, **values: object) -> None:
        [name] = [name for name in self.tasks() if f"shard{number}-" in name]
        found = json.loads(self.there()[name])
        found["record"] |= values
        self.bucket.put(f"m/{name}", json.dumps(found).encode())


@pytest.fixture
def run(models: Path, tmp_path: Path, s3: Server, proxy: Proxy) -> InBucket:
    return InBucket(Shards(models, RECIPES["copies"], tmp_path), Bucket(s3.env()))


def test_what_was_uploaded_is_journaled_once(run: InBucket) -> None:
    plan = run.shards.plan
    for shard in plan.shards:
        run.compute(shard.index)
    there = run.there()
    for shard in plan.shards:
        assert there[shard.name] == (run.shards.whole / shard.name).read_bytes()
    assert not list(run.shards.out.rglob("*.safetensors")), "nothing is in the output"
    assert run.adopt(TOKEN - 1) == [], "those are of a later driver"
    assert run.adopt() == [shard.index for shard in plan.shards]
    assert run.shards.ledger.mirrored.checksums().keys() == {shard.name for shard in plan.shards}
    assert not run.shards.ledger.shards.open() and not run.shards.ledger.shards.unmirrored()
    run.shards.ledger.check_rows()
    assert run.adopt() == []
    assert len(run.tasks()) == len(plan.shards), "until a snapshot names the shards"


Damage = Callable[[InBucket], None]


def test_a_shard_that_is_journaled_meanwhile_is_not_to_be_uploaded(
    run: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.compute(1)
    ledger = run.shards.ledger
    mirrored = ledger.mirrored.checksums

    def and_then_journaled() -> dict[str, str]:
        found = mirrored()
        run.adopt()
        return found

    monkeypatch.setattr(ledger.mirrored, "checksums", and_then_journaled)
    assert ledger.shards.unmirrored() == []


def other_byte(run: InBucket) -> None:
    data = bytearray(run.there()[run.name(1)])
    data[-1] ^= 1
    run.bucket.put(f"m/{run.name(1)}", bytes(data))


def missing(run: InBucket) -> None:
    run.store.put({}, [run.name(1)])


def of_another_run(run: InBucket) -> None:
    run.change_record(1, fingerprint="0" * 64)


def nowhere(run: InBucket) -> None:
    run.change_record(1, uploaded=None)


def with_a_hash_that_is_none(run: InBucket) -> None:
    run.change_record(1, uploaded=[1, "' OR 1", "x"])


def with_other_hashes(run: InBucket) -> None:
    nbytes = len(run.there()[run.name(1)])
    run.change_record(1, uploaded=[nbytes, "0" * 64, "another"])


def that_is_none(run: InBucket) -> None:
    [name] = [name for name in run.tasks() if "shard1-" in name]
    run.bucket.put(f"m/{name}", b"[" * 200_000)


@pytest.mark.parametrize(
    "damage",
    [
        other_byte,
        missing,
        of_another_run,
        nowhere,
        with_a_hash_that_is_none,
        with_other_hashes,
        that_is_none,
    ],
)
def test_what_is_not_as_its_record_is_not_journaled(run: InBucket, damage: Damage) -> None:
    for number in (0, 1):
        run.compute(number)
    damage(run)
    assert run.adopt() == [0]
    assert run.name(1) in run.shards.ledger.shards.open()
    assert not [name for name in run.tasks() if "shard1-" in name]


def test_what_was_committed_first_is_kept(run: InBucket) -> None:
    run.compute(0)
    first = run.compute(1).record.units[0]
    other = replace(first, hashes=bytes(len(first.hashes)))
    ledger = run.shards.ledger
    attempt = ledger.attempts.start({"pid": 1, "host": "here", "boot_id": ""})
    ledger.units.commit_batch(attempt, 1, [other], {"units_committed": 1, "bytes_committed": 1})
    adopted, superfluous = run.adopt_and_tidy()
    assert adopted == [0]
    assert ledger.units.progress()[first.number].hashes == other.hashes
    left = {run.name(0), *superfluous}
    assert run.there().keys() == left, "what contradicts it is no shard of this run"


def test_a_shard_of_two_tasks_is_journaled_once(run: InBucket) -> None:
    run.compute(1)
    run.compute(1, 2)
    both = run.tasks()
    assert len(both) == 2
    assert run.adopt_and_tidy() == ([1], both)
    assert run.tasks() == both, "until a snapshot names the shard"


def test_a_shard_whose_etag_is_another_is_read(run: InBucket) -> None:
    """It was copied since, or the server has changed how it makes them."""
    uploaded = run.compute(1).record.uploaded
    assert uploaded is not None
    run.change_record(1, uploaded=[uploaded.nbytes, uploaded.sha256, "another"])
    assert run.adopt() == [1]


def test_a_task_of_a_shard_that_the_plan_does_not_have_is_removed(run: InBucket) -> None:
    run.compute(0)
    [name] = run.tasks()
    beyond = TaskName(TOKEN, f"shard{len(run.shards.plan.shards)}-1").name
    run.bucket.put(f"m/{beyond}", run.there()[name])
    assert run.adopt_and_tidy() == ([0], [name])
    assert run.tasks() == [name]


def test_what_was_begun_of_an_adopted_shard_here_is_deleted(run: InBucket) -> None:
    run.compute(1)
    partial = run.shards.out / f"{run.name(1)}.partial"
    partial.write_bytes(b"begun")
    assert run.adopt() == [1]
    assert not partial.exists()


def test_whoever_has_lost_the_lease_removes_nothing(run: InBucket) -> None:
    run.compute(1)
    other_byte(run)
    before = run.there()

    def lost() -> None:
        raise Resumable("mirror_taken_over", "Another machine")

    with pytest.raises(Resumable):
        run.adopt_and_tidy(check_lease=lost)
    assert run.there() == before


def test_a_task_that_was_given_up_before_it_began(run: InBucket) -> None:
    task = run.task(0)
    run.give_up(0)
    outcome = run.run(task)
    assert isinstance(outcome, Failed) and outcome.reason == "abandoned"
    assert run.there() == {}


def test_a_task_that_is_given_up_while_it_uploads(
    run: InBucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket has parts of it already."""
    monkeypatch.setattr(BucketEndpoint, "beat_seconds", 0.0)
    monkeypatch.setattr(s3_uploads, "PART", 5000)
    create = BucketStore.create

    def given_up(store: BucketStore, name: str, path: Path, moved: Moved) -> str | None:
        def sent(nbytes: int) -> None:
            if nbytes:
                run.give_up(0)
            moved(nbytes)

        return create(store, name, path, sent)

    monkeypatch.setattr(BucketStore, "create", given_up)
    outcome = run.run(run.task(0))
    assert isinstance(outcome, Failed) and outcome.reason == "abandoned"
    assert run.there() == {} and run.bucket.begun_uploads() == []


@pytest.mark.parametrize("whose", [lease_name(1), MANIFEST_FILE, ""])
def test_a_task_that_is_given_up_before_its_record(
    run: InBucket, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    upload = BucketEndpoint._upload
    if whose:
        run.store.put({whose: b"{}"})

    def given_up(endpoint: BucketEndpoint, *given: object) -> object:
        uploaded = upload(endpoint, *given)  # type: ignore[arg-type]
        run.give_up(0)
        return uploaded

    monkeypatch.setattr(BucketEndpoint, "_upload", given_up)
    outcome = run.run(run.task(0))
    assert isinstance(outcome, Failed) and outcome.reason == "abandoned"
    left = {run.name(0), whose} if whose else set()
    assert run.there().keys() == left, "the same bytes, where they are somebody's"


def test_a_task_that_is_given_up_leaves_what_another_one_uploaded(
    run: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose record may be about to be written."""
    run.compute(0)
    before, upload = run.there()[run.name(0)], BucketEndpoint._upload

    def given_up(endpoint: BucketEndpoint, *given: object) -> object:
        uploaded = upload(endpoint, *given)  # type: ignore[arg-type]
        run.give_up(0)
        return uploaded

    monkeypatch.setattr(BucketEndpoint, "_upload", given_up)
    outcome = run.run(run.task(0, 2))
    assert isinstance(outcome, Failed) and outcome.reason == "abandoned"
    assert run.there() == {run.name(0): before}


def test_a_shard_that_another_task_uploaded_is_compared(run: InBucket) -> None:
    first = run.compute(1)
    assert run.compute(1, 2).record.uploaded == first.record.uploaded
    other_byte(run)
    before = run.there()[run.name(1)]
    failed = run.run(run.task(1, 3))
    assert isinstance(failed, Failed) and failed.reason == "hash_conflict"
    assert first.record.units[-1].hashes[-16:].hex() in failed.message
    assert run.there()[run.name(1)] == before, "the first is kept"


@pytest.mark.parametrize("differs", [False, True])
def test_two_tasks_that_upload_at_once(
    run: InBucket, monkeypatch: pytest.MonkeyPatch, differs: bool
) -> None:
    """Both have looked before one has uploaded."""
    first = run.compute(1)
    if differs:
        other_byte(run)
    before, listed = run.there()[run.name(1)], BucketStore.listed
    looks = iter([None])
    monkeypatch.setattr(BucketStore, "listed", lambda store, name: next(looks, listed(store, name)))
    second = run.run(run.task(1, 2))
    if differs:
        assert isinstance(second, Failed) and second.reason == "hash_conflict"
    else:
        assert isinstance(second, Finished) and second.record.uploaded == first.record.uploaded
    assert run.there()[run.name(1)] == before, "the first is kept"


def test_requests_that_go_wrong_are_made_again(run: InBucket, proxy: Proxy, soak: bool) -> None:
    for number in range(len(run.shards.plan.shards) if soak else 2):
        task = run.task(number)
        proxy.shake(number, 0.2)
        outcome = run.run(task)
        proxy.choose = lambda method, path: None
        assert isinstance(outcome, Finished), outcome
        assert number in run.adopt()
    assert sum(proxy.wrong.values()) > 3


def test_a_heartbeat_whose_answer_is_lost_is_no_end(run: InBucket, proxy: Proxy) -> None:
    """Nobody has given the task up: what is there now is its own."""
    task, faults = run.task(0), iter(["lost", "503", "503"])
    proxy.choose = lambda method, path: (
        next(faults, None) if method == "PUT" and "/task-" in path else None
    )
    for count in (1, 2):
        task.endpoint.beat(Beat(Node("", "here"), count))
    [name] = run.tasks()
    assert json.loads(run.there()[name])["count"] == 2
    assert proxy.wrong["lost"] == 1


def test_a_bucket_that_denies_access_is_told_before_anything_is_computed(
    run: InBucket, proxy: Proxy
) -> None:
    task = run.task(0)
    proxy.choose = lambda method, path: "403"
    assert "denies access" in task.endpoint.obstacle(Node("", "here"))


def test_a_bucket_that_fails_when_a_task_begins(
    run: InBucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_task, "JOIN_SECONDS", 0.0)
    task = run.task(0)
    proxy.choose = lambda method, path: "503"
    assert "HTTP 503" in task.endpoint.obstacle(Node("", "here"))
    proxy.choose = lambda method, path: None
    assert task.endpoint.obstacle(Node("", "here")) == ""
    assert isinstance(run.run(task), Finished), "what may have been written is known again"


@pytest.fixture
def lease(run: InBucket, monkeypatch: pytest.MonkeyPatch) -> Lease:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", "1")
    return Lease.acquire(run.store, "run")


def replicator_of(run: InBucket, lease: Lease) -> Replicator:
    parts = (ReplicationOptions(then_delete=True), Storage(), print, print)
    return Replicator(run.store, lease, run.shards.ledger, run.shards.out, *parts)


def test_a_driver_that_wakes_late_changes_nothing(run: InBucket, lease: Lease) -> None:
    """Another machine has taken over, and finished."""
    replicator, mirror = replicator_of(run, lease), SimpleNamespace(store=run.store, url="")
    shards: tuple[Any, ...] = (run.shards.plan, run.shards.ledger, None, mirror)
    exchange = BucketExchange(*shards, replicator, lambda: None)
    exchange.endpoint("shard0-1", run.shards.plan.shards[0])
    other = Lease.acquire(run.store, "run", take_over=True)
    other.stop()
    run.store.put({".resumerge/done.json": b"{}"}, run.tasks())
    before = run.there()
    time.sleep(0.6)  # more than half of the lease's time
    with pytest.raises(Resumable, match="Another machine"):
        exchange.endpoint("shard1-1", run.shards.plan.shards[1])
    with pytest.raises(Resumable, match="Another machine"):
        exchange.check()
    assert exchange.adopt() == []
    assert run.there() == before


def test_a_shard_that_arrives_during_a_listing_is_not_missing(run: InBucket, lease: Lease) -> None:
    first, second = (run.name(number) for number in (0, 1))
    replicator, ledger = replicator_of(run, lease), run.shards.ledger
    run.store.put({first: b"one"})
    ledger.mirrored.note(first, 3, "0" * 64)
    list_before = run.store.list

    def list_meanwhile() -> dict[str, int]:
        found = list_before()
        run.store.put({second: b"second"})
        ledger.mirrored.note(second, 6, "1" * 64)
        return found

    run.store.list = list_meanwhile  # type: ignore[method-assign]
    _, some_are_missing = replicator._writer.listing()
    assert not some_are_missing and ledger.mirrored.files().keys() == {first, second}
    run.store.list = list_before  # type: ignore[method-assign]
    run.store.put({}, [first])
    _, some_are_missing = replicator._writer.listing()
    assert some_are_missing and ledger.mirrored.files().keys() == {second}


def test_a_late_task_leaves_the_upload_of_whoever_has_the_lease(
    run: InBucket, lease: Lease
) -> None:
    task = run.task(0)
    run.give_up(0)
    key = f"m/{run.name(0)}"
    run.bucket.api.create_multipart_upload(Bucket=run.bucket.name, Key=key)
    assert isinstance(run.run(task), Failed)
    assert run.bucket.begun_uploads() == [key]
