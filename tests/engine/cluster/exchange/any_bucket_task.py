"""Tests of tasks in a bucket of any server, which the test file of each server imports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bucket_tasks import TOKEN, InBucket
from loopback_s3 import Proxy
from tiny_models import LLAMA, write_family

from resumerge.engine.cluster.exchange.bucket_task import BucketEndpoint
from resumerge.engine.cluster.outcomes import Failed, Finished
from resumerge.mirror.names import MANIFEST_FILE, lease_name
from resumerge.mirror.stores.base import Moved
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.store import BucketStore


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


def test_what_was_uploaded_is_journaled_once(run: InBucket) -> None:
    plan = run.shards.plan
    for shard in plan.shards:
        run.compute(shard.number)
    there = run.there()
    for shard in plan.shards:
        assert there[shard.name] == (run.shards.whole / shard.name).read_bytes()
    assert not list(run.shards.out.rglob("*.safetensors")), "nothing is in the output"
    assert run.adopt(TOKEN - 1) == [], "those are of a later driver"
    assert run.adopt() == [shard.number for shard in plan.shards]
    assert run.shards.ledger.mirrored.checksums().keys() == {shard.name for shard in plan.shards}
    assert not run.shards.ledger.shards.open() and not run.shards.ledger.shards.unmirrored()
    run.shards.ledger.check_rows()
    assert run.adopt() == []
    assert len(run.tasks()) == len(plan.shards), "until a snapshot names the shards"


Damage = Callable[[InBucket], None]


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


def test_a_task_that_was_given_up_before_it_began(run: InBucket) -> None:
    task = run.task(0)
    run.give_up(0)
    outcome = run.run(task)
    assert isinstance(outcome, Failed) and outcome.reason == "abandoned"
    assert run.there() == {}


def test_a_task_that_is_given_up_while_it_uploads(
    run: InBucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is given up in the middle of an upload leaves no part of it."""
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
    assert run.there() == {} and run.bucket.unfinished_uploads() == []


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
    """The record of the other task may be about to be written."""
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
    """The second task sees no shard, because it looks before the first one uploads."""
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
