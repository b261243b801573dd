"""Promise: what tasks of a cluster left in a mirror stays until a snapshot names their shards."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence

import pytest
from opened_snapshots import newest_snapshot, open_snapshot
from plain_folder import PlainFolder
from replication import Replication
from waiting import wait_until

from resumerge.errors import Resumable
from resumerge.mirror.names import TaskName


def task(token: int) -> str:
    return TaskName(token, "shard0-1").name


def test_the_objects_of_tasks_go_after_a_snapshot(replication: Replication) -> None:
    store, token = replication.store, replication.lease.token
    first = min(replication.shards())
    path = replication.out / first
    shutil.copyfile(path, store.folder / first)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    ours, stale, later = task(token), task(token - 1), task(token + 1)
    store.put(dict.fromkeys((ours, stale, later), b"{}"))
    put, plain = store.put, PlainFolder(store.folder)

    def watched(files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        if {ours, stale} & set(remove):
            found = newest_snapshot(plain, plain.list())
            assert found is not None, "no snapshot"
            with open_snapshot(found[1]) as there:
                assert there.mirrored.checksums().get(first) == sha256, "the shard is nobody's"
        put(files, remove)

    store.put = watched  # type: ignore[method-assign]
    replicator = replication.make()
    replication.ledger.mirrored.record(first, path.stat().st_size, sha256)
    path.unlink()
    replicator.uploaded([ours])
    replicator.start()
    replicator.wait_for_snapshot(lambda: None)
    wait_until(lambda: not {ours, stale} & plain.list().keys())
    replication.finish()
    assert later in plain.list(), "that of a later driver stays"
    assert first in replication.model()


def test_what_is_recorded_while_a_snapshot_is_written_is_not_named_by_it(
    replication: Replication,
) -> None:
    """The next snapshot names the shard, before its local file may be deleted."""
    store, ledger = replication.store, replication.ledger
    name = min(replication.shards())
    data = (replication.out / name).read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    put, recorded = store.put, list[str]()

    def watched(files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        put(files, remove)
        if any("ledger-" in each for each in files) and not recorded:
            (store.folder / name).write_bytes(data)
            ledger.mirrored.record(name, len(data), sha256)
            recorded.append(name)

    store.put = watched  # type: ignore[method-assign]
    writer = replication.make()._writer
    writer.write_snapshot()
    assert recorded and writer.named_in_snapshot == set() and writer.deletable() == []
    assert writer.snapshot_names_other_files
    writer.write_snapshot()
    assert writer.named_in_snapshot == {name} and not writer.snapshot_names_other_files


def test_the_objects_of_tasks_stay_without_the_lease(replication: Replication) -> None:
    """Another machine takes over before a failed removal is tried again."""
    store, ours, tries = replication.store, task(replication.lease.token), []
    store.put({ours: b"{}"})
    put = store.put

    def watched(files: Mapping[str, bytes], remove: Sequence[str] = ()) -> None:
        if ours in remove:
            tries.append(replication.lease.is_lost)
            replication.lose()
            raise OSError("for a moment")
        put(files, remove)

    store.put = watched  # type: ignore[method-assign]
    replicator = replication.make()
    replicator.uploaded([ours])
    replicator.start()
    replication.wait_until_over()
    assert tries == [False] and ours in store.list()


def test_tasks_wait_for_a_snapshot_until_the_mirror_is_given_up(replication: Replication) -> None:
    def happens(name: str) -> None:
        if name == "put":
            raise OSError("not now")

    replication.store.fails = happens
    replicator = replication.begin(stall_seconds=0.2)
    with pytest.raises(Resumable, match="tasks of the cluster have to wait"):
        replicator.wait_for_snapshot(lambda: None)
