"""Promise: the engine and the tasks of a cluster hear from a replicator what is so now, and it does
what they tell it."""

from __future__ import annotations

import pytest
from plain_folder import PlainFolder
from replication import Replication
from waiting import wait_until

from resumerge.errors import Reason, Resumable
from resumerge.mirror.names import SnapshotName, TaskName, snapshot_names


class Stopped(Exception):
    pass


def everything_is_mirrored(replication: Replication) -> None:
    """Start the replicator, and wait until everything is mirrored."""
    replication.begin()
    wait_until(lambda: not replication.ledger.shards.unmirrored())
    wait_until(lambda: not replication.replicator._writer.snapshot_names_other_files)


def test_who_lost_the_lease_hears_of_it_though_there_is_nothing_to_do(
    replication: Replication,
) -> None:
    everything_is_mirrored(replication)
    replication.replicator.check()
    replication.replicator.check_lease()
    replication.lose()
    for ask in (replication.replicator.check, replication.replicator.check_lease):
        with pytest.raises(Resumable, match="Another machine has taken over") as stopped:
            ask()
        assert stopped.value.reason == Reason.MIRROR_TAKEN_OVER


def test_tasks_do_not_wait_for_a_snapshot_that_will_never_be(replication: Replication) -> None:
    replication.lose()
    replicator = replication.begin()
    with pytest.raises(Resumable, match="Another machine has taken over"):
        replicator.wait_for_snapshot(lambda: None)


def test_who_waits_for_a_snapshot_can_be_stopped(replication: Replication) -> None:
    def fails(name: str) -> None:
        raise OSError("not now")

    def stop() -> None:
        raise Stopped

    replication.store.fails = fails
    with pytest.raises(Stopped):
        replication.begin().wait_for_snapshot(stop)


def test_what_tasks_uploaded_is_tidied_up_though_nothing_else_is_to_be_done(
    replication: Replication,
) -> None:
    everything_is_mirrored(replication)
    task = TaskName(replication.lease.token, "shard0-1").name
    replication.store.put({task: b"{}"})
    replication.replicator.uploaded([task])
    wait_until(lambda: task not in PlainFolder(replication.store.folder).list())


def test_the_objects_of_tasks_that_still_work_stay(replication: Replication) -> None:
    """The objects are of this attempt, and the ledger does not have their shards yet."""
    task = TaskName(replication.lease.token, "shard0-1").name
    replication.store.put({task: b"{}"})
    everything_is_mirrored(replication)
    assert task in replication.store.list()


def test_what_becomes_superfluous_during_a_removal_is_removed_next(
    replication: Replication,
) -> None:
    writer = replication.make()._writer
    writer.add_superfluous(["a", "b"])
    writer.remove(["a"])
    assert writer.superfluous == ("b",)


def test_what_is_recorded_while_the_mirror_is_listed_is_not_forgotten(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing may be older than the recorded file."""
    name = min(replication.shards())

    def listed_before() -> dict[str, int]:
        found = PlainFolder(replication.store.folder).list()
        replication.ledger.mirrored.record(name, 1, "0" * 64)
        return found

    monkeypatch.setattr(replication.store, "list", listed_before)
    _, some_are_missing = replication.make()._writer.list_and_forget_missing()
    assert not some_are_missing and name in replication.ledger.mirrored.checksums()
    assert replication.events() == []


def test_the_snapshots_of_an_attempt_before_this_one_are_replaced(
    replication: Replication,
) -> None:
    token = replication.lease.token
    before = SnapshotName(token, 7, "0" * 32).name
    replication.store.put({before: b"of an attempt whose answer was lost"})
    replication.begin()
    replication.replicator.wait_for_snapshot(lambda: None)
    replication.replicator.close()
    [snapshot] = snapshot_names(replication.store.list())
    assert (snapshot.token, snapshot.number >= 8) == (token, True)


def test_before_it_begins_the_mirror_has_what_the_ledger_says(replication: Replication) -> None:
    count = len(replication.ledger.shards.all())
    replication.ledger.mirrored.record(min(replication.shards()), 1, "0" * 64)
    assert f"has 1 of {count} shards" in replication.make().handover_summary()


def test_a_card_that_the_user_wrote_stays_and_is_told(replication: Replication) -> None:
    replication.store.put({"README.md": b"mine"})
    replication.begin()
    replication.finish()
    assert replication.store.get("README.md") == b"mine"
    [event] = replication.ledger.events.all("file_kept")
    assert event["data"] == {"name": "README.md", "mirror": replication.store.url}
    [note] = replication.notes
    assert note.startswith("README.md in the mirror at") and note.endswith("stays unchanged")


@pytest.mark.parametrize(
    ("shards", "sealed", "lacks"),
    [(1, 1, "its only shard"), (4, 2, "2 of 4 shards"), (4, 0, "nothing")],
)
def test_what_a_mirror_lacks_is_said(
    replication: Replication,
    monkeypatch: pytest.MonkeyPatch,
    shards: int,
    sealed: int,
    lacks: str,
) -> None:
    ledger, replicator = replication.ledger, replication.make(stall_seconds=0.0)
    monkeypatch.setattr(ledger.shards, "all", lambda: [{}] * shards)
    monkeypatch.setattr(ledger.shards, "unmirrored", lambda: ["a"] * sealed)
    monkeypatch.setattr(replicator._writer, "is_local", lambda name: True)
    with pytest.raises(Resumable, match=f"It lacks {lacks}. Make the mirror work again"):
        replicator.wait_for_snapshot(lambda: None)
