"""Promise: a task that shares only a bucket with its driver knows when it is given up, and leaves
nothing then; what it put there is journaled only if it is what its record says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from any_bucket_task import (
    models,
    other_byte,
    test_a_shard_that_another_task_uploaded_is_compared,
    test_a_task_that_is_given_up_before_its_record,
    test_a_task_that_is_given_up_leaves_what_another_one_uploaded,
    test_a_task_that_is_given_up_while_it_uploads,
    test_a_task_that_was_given_up_before_it_began,
    test_two_tasks_that_upload_at_once,
    test_what_is_not_as_its_record_is_not_journaled,
    test_what_was_uploaded_is_journaled_once,
)
from bucket_tasks import TOKEN, InBucket
from loopback_s3 import Bucket, Proxy, Server, before, start
from shard_tasks import RECIPES, Shards
from waiting import HANGS_SECONDS

from resumerge.engine.cluster.exchange import bucket_task
from resumerge.engine.cluster.exchange.base import Beat
from resumerge.engine.cluster.exchange.bucket import BucketExchange
from resumerge.engine.cluster.outcomes import Failed, Finished, Node
from resumerge.errors import Reason, Resumable
from resumerge.mirror import ReplicationOptions, Replicator
from resumerge.mirror.lease import Lease
from resumerge.mirror.names import TaskName
from resumerge.storage import Storage

__all__ = [
    "models",
    "test_a_shard_that_another_task_uploaded_is_compared",
    "test_a_task_that_is_given_up_before_its_record",
    "test_a_task_that_is_given_up_leaves_what_another_one_uploaded",
    "test_a_task_that_is_given_up_while_it_uploads",
    "test_a_task_that_was_given_up_before_it_began",
    "test_two_tasks_that_upload_at_once",
    "test_what_is_not_as_its_record_is_not_journaled",
    "test_what_was_uploaded_is_journaled_once",
]


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


@pytest.fixture
def run(models: Path, tmp_path: Path, s3: Server, proxy: Proxy) -> InBucket:
    return InBucket(Shards(models, RECIPES["copies"], tmp_path), Bucket(s3.env()))


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
    """The ETag is another one if the shard was copied, or the server computes it otherwise."""
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
        raise Resumable(Reason.MIRROR_TAKEN_OVER, "Another machine")

    with pytest.raises(Resumable):
        run.adopt_and_tidy(check_lease=lost)
    assert run.there() == before


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
    """The present object is the task's own: its write succeeded, only the response was lost."""
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
def lease(run: InBucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", "1")
    lease = Lease.acquire(run.store, "run")
    yield lease
    end(lease)


def end(lease: Lease) -> None:
    """Stop a lease, and wait for a renewal that is under way: it writes when it likes."""
    lease.stop()
    lease._thread.join(HANGS_SECONDS)


def replicator_of(run: InBucket, lease: Lease) -> Replicator:
    parts = (ReplicationOptions(then_delete=True), Storage(), print, print)
    return Replicator(run.store, lease, run.shards.ledger, run.shards.out, *parts)


def test_a_driver_that_wakes_late_changes_nothing(run: InBucket, lease: Lease) -> None:
    """Another machine has taken over the lease and finished the run before the driver wakes."""
    replicator, mirror = replicator_of(run, lease), SimpleNamespace(store=run.store, url="")
    shards: tuple[Any, ...] = (run.shards.plan, run.shards.ledger, None, mirror)
    exchange = BucketExchange(*shards, replicator, lambda: None)
    exchange.endpoint("shard0-1", run.shards.plan.shards[0])
    other = Lease.acquire(run.store, "run", take_over=True)
    end(other)
    run.store.put({".resumerge/done.json": b"{}"}, run.tasks())
    end(lease)  # whose record would have another heartbeat
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
    ledger.mirrored.record(first, 3, "0" * 64)
    list_before = run.store.list

    def list_meanwhile() -> dict[str, int]:
        found = list_before()
        run.store.put({second: b"second"})
        ledger.mirrored.record(second, 6, "1" * 64)
        return found

    run.store.list = list_meanwhile  # type: ignore[method-assign]
    _, some_are_missing = replicator._writer.list_and_forget_missing()
    assert not some_are_missing and ledger.mirrored.files().keys() == {first, second}
    run.store.list = list_before  # type: ignore[method-assign]
    run.store.put({}, [first])
    _, some_are_missing = replicator._writer.list_and_forget_missing()
    assert some_are_missing and ledger.mirrored.files().keys() == {second}


def test_a_late_task_leaves_the_upload_of_whoever_has_the_lease(
    run: InBucket, lease: Lease
) -> None:
    task = run.task(0)
    run.give_up(0)
    key = f"m/{run.name(0)}"
    run.bucket.api.create_multipart_upload(Bucket=run.bucket.name, Key=key)
    assert isinstance(run.run(task), Failed)
    assert run.bucket.unfinished_uploads() == [key]
