"""Promise: what is done to a mirror, and to shards here, is done under the lease and in its order:
upload, record, snapshot, delete; companions, manifest."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_leases import SECONDS
from mirror_audit import check_mirror
from plain_folder import PlainFolder
from replication import COMPANIONS, Replication
from waiting import wait_until

from resumerge.errors import Reason, Resumable
from resumerge.mirror.companions import upload_companions
from resumerge.mirror.conflicts import ConflictResolver
from resumerge.mirror.manifest import manifest_of, read_manifest, write_manifest
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, lease_name, snapshot_names
from resumerge.mirror.stores.base import METADATA
from resumerge.sizes import show_size

# Without the lease


def test_nothing_is_begun_without_the_lease(replication: Replication) -> None:
    replication.lose()
    before = replication.store.list()
    replication.begin()
    replication.wait_until_over()
    assert replication.store.list() == before


def test_what_failed_is_not_tried_again_without_the_lease(replication: Replication) -> None:
    """Another machine takes over before the next try."""
    puts: list[bool] = []

    def happens(name: str) -> None:
        if name == "put" and threading.current_thread().name == "mirror":
            puts.append(replication.lease.is_lost)
            if len(puts) == 1:
                replication.lose()
                raise OSError("for a moment")

    replication.store.fails = happens
    replication.begin()
    replication.wait_until_over()
    assert puts == [False]


def test_no_local_shard_is_deleted_without_the_lease(replication: Replication) -> None:
    """The snapshot that names the shard may be the last file that this machine wrote."""
    shards = replication.shards()
    first = min(shards)
    uploaded = threading.Event()

    def happens(name: str) -> None:
        if name == f"uploaded {first}":
            uploaded.set()
        elif uploaded.is_set() and name.startswith("written .resumerge/ledger-"):
            replication.lose()

    replication.store.fails = happens
    replication.begin(then_delete=True)
    replication.wait_until_over()
    assert uploaded.is_set()
    assert replication.shards() == shards


def test_no_snapshot_is_written_without_the_lease(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot would name a shard that was recorded just before."""
    record, before = replication.ledger.mirrored.record, []

    def and_then_lost(name: str, nbytes: int, sha256: str) -> None:
        record(name, nbytes, sha256)
        before.append(snapshot_names(replication.store.list()))
        replication.lose()

    monkeypatch.setattr(replication.ledger.mirrored, "record", and_then_lost)
    replication.begin()
    replication.wait_until_over()
    assert before == [snapshot_names(replication.store.list())] and len(before[0]) == 1


def test_an_upload_ends_with_the_lease(replication: Replication) -> None:
    replication.lose_at("upload ")
    replication.begin()
    replication.wait_until_over()
    assert not replication.model()
    assert not replication.ledger.mirrored.checksums()


def test_what_was_uploaded_without_the_lease_does_not_count(replication: Replication) -> None:
    replication.lose_at("uploaded ")
    replication.begin()
    replication.wait_until_over()
    assert len(replication.model()) == 1
    assert not replication.ledger.mirrored.checksums()


@pytest.mark.parametrize(
    "operation", ["written config.json", "uploaded tokenizer.json"], ids=["small", "large"]
)
def test_no_manifest_is_written_without_the_lease(
    replication: Replication, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr("resumerge.mirror.companions.SMALL", 100)
    tokenizer = replication.out.with_name("tokenizer.json")
    tokenizer.write_bytes(b"{" + b" " * 200 + b"}")
    replication.lose_at(operation)
    replicator = replication.begin()
    with pytest.raises(Resumable, match="Another machine has taken over"):
        replicator.finish(lambda: [*COMPANIONS, ("tokenizer.json", tokenizer)], lambda: None)
    assert operation.partition(" ")[2] in replication.model()
    assert read_manifest(replication.store) is None


def test_what_is_of_a_later_lease_stays_when_a_manifest_is_written(
    replication: Replication,
) -> None:
    """A machine that took over at the last moment needs its lease and its snapshots."""
    replication.make()
    kept = {lease_name(3), snapshot(3, 1), snapshot(4, 1)}
    for name in {lease_name(2), snapshot(1, 7), snapshot(2, 1), *kept}:
        replication.store.put({name: b"of somebody"})
    manifest = manifest_of(replication.ledger, {"model.safetensors": (1, "0" * 64)}, 2)
    write_manifest(replication.store, manifest, 2, ["model.safetensors"])
    metadata = {n for n in replication.store.list() if n.startswith(f"{METADATA}/")}
    assert metadata == {MANIFEST_FILE, *kept}


def snapshot(token: int, number: int) -> str:
    return SnapshotName(token, number, "0" * 32).name


def test_a_shard_that_is_sealed_after_the_loss_is_told(replication: Replication) -> None:
    replication.lose()
    replicator = replication.begin()
    replication.wait_until_over()
    with pytest.raises(Resumable):
        replicator.sealed(0)
    with pytest.raises(Resumable):
        replicator.frees(0.0)


# In its order


def test_each_shard_is_named_before_the_next_is_uploaded(replication: Replication) -> None:
    operations: list[str] = []
    consistent: list[bool] = []

    def happens(name: str) -> None:
        kind, _, file = name.partition(" ")
        if kind in ("uploaded", "written"):
            operations.append(file)
            consistent.append(check_mirror(PlainFolder(replication.store.folder)).consistent)

    replication.store.fails = happens
    replication.begin()
    replication.finish()
    shards = sorted(replication.shards())
    snapshots = [n for n, name in enumerate(operations) if "/ledger-" in name]
    assert [name for name in operations if "/ledger-" not in name] == [
        *shards, "README.md", "config.json", ".resumerge/done.json"
    ]  # fmt: skip
    assert snapshots == list(range(0, 2 * len(shards) + 1, 2)), "one before, one after each"
    assert all(consistent)
    time.sleep(SECONDS / 2)
    assert not replication.lease.is_lost, "nobody renews it any more"
    assert replication.ledger.mirrored.checksums().keys() == set(shards)
    assert list(replication.store.list()).count(".resumerge/done.json") == 1
    assert not snapshot_names(replication.store.list())
    manifest = read_manifest(replication.store)
    assert manifest is not None
    assert manifest.files.keys() == {*shards, "README.md", "config.json"}
    assert check_mirror(replication.store).state == "finished"


def test_snapshots_are_numbered_and_replace_each_other(replication: Replication) -> None:
    seen: list[list[int]] = []

    def happens(name: str) -> None:
        if name.startswith("written .resumerge/ledger-"):
            listed = snapshot_names(PlainFolder(replication.store.folder).list())
            assert {snapshot.token for snapshot in listed} == {1}
            seen.append([snapshot.number for snapshot in listed])

    replication.store.fails = happens
    replication.begin()
    replication.finish()
    assert not list(replication.ledger.path.parent.glob("*.mirror.db*"))
    assert seen == [[number] for number in range(1, len(replication.shards()) + 2)]


def test_a_local_shard_goes_once_the_newest_snapshot_names_it(replication: Replication) -> None:
    shards = sorted(replication.shards())
    left: list[set[str]] = []

    def happens(name: str) -> None:
        if name.startswith("upload "):
            left.append(replication.shards())

    replication.store.fails = happens
    replicator = replication.begin(then_delete=True)
    replication.finish()
    wait_until(lambda: not replication.shards())
    assert left == [set(shards[number:]) for number in range(len(shards))]
    assert replication.model().keys() == {*shards, "README.md", "config.json"}
    assert not replicator.frees(0.0), "there is none any more"


def test_local_shards_stay_unless_they_are_to_go(replication: Replication) -> None:
    shards = replication.shards()
    replicator = replication.begin()
    replication.finish()
    assert replication.shards() == shards
    assert not replicator.frees(0.0)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 5)])
def test_a_file_that_vanished_there_is_uploaded_again_before_the_end(
    replication: Replication, harm: Callable[[Path], None]
) -> None:
    shards = sorted(replication.shards())
    replication.begin()
    wait_until(lambda: len(replication.ledger.mirrored.checksums()) == len(shards))
    harm(replication.store.folder / shards[0])
    replication.finish()
    [lost] = replication.ledger.events.all("mirror_lost_file")
    assert lost["data"]["name"] == shards[0]
    assert replication.model()[shards[0]] == (replication.out / shards[0]).stat().st_size
    assert check_mirror(replication.store).consistent


def test_no_shard_is_deleted_here_that_has_vanished_there(replication: Replication) -> None:
    """The shard vanishes while the snapshot that names it is written."""
    first = min(replication.shards())
    at_upload: list[bool] = []
    gone: list[None] = []

    def happens(name: str) -> None:
        there = replication.store.folder / first
        if name.startswith("written .resumerge/ledger-") and there.exists() and not gone:
            gone.append(there.unlink())
        if name == f"upload {first}":
            at_upload.append((replication.out / first).exists())

    replication.store.fails = happens
    replication.begin(then_delete=True)
    wait_until(lambda: len(at_upload) == 2)
    assert at_upload == [True, True]
    replication.store.fails = lambda name: None
    replication.finish()


def test_no_snapshot_names_what_vanished_while_nobody_looked(replication: Replication) -> None:
    """The first snapshot is consistent, too: another machine may find it."""
    shards = sorted(replication.shards())
    replication.ledger.mirrored.record(shards[0], 1, "0" * 64)
    named: list[bool] = []

    def happens(name: str) -> None:
        if name.startswith("written .resumerge/ledger-"):
            named.append(check_mirror(PlainFolder(replication.store.folder)).consistent)

    replication.store.fails = happens
    replication.begin()
    replication.finish()
    assert named == [True] * (len(shards) + 1)


def test_a_shard_that_is_lost_here_and_there_is_not_named_any_more(
    replication: Replication,
) -> None:
    shards = sorted(replication.shards())
    replication.begin(then_delete=True)
    wait_until(lambda: not replication.shards())
    (replication.store.folder / shards[0]).unlink()
    with pytest.raises(Resumable, match=f"{shards[0]} is missing both"):
        replication.finish()
    left = check_mirror(replication.store)
    assert (left.files.keys(), left.problems) == (set(shards[1:]), {})


def test_a_snapshot_whose_answer_was_lost_is_replaced_like_any_other(
    replication: Replication,
) -> None:
    failed: list[str] = []

    def happens(name: str) -> None:
        later = replication.ledger.mirrored.checksums() and not failed
        if name.startswith("written .resumerge/ledger-") and later:
            failed.append(name)
            raise OSError("the line was cut")

    replication.store.fails = happens
    replication.begin()
    wait_until(lambda: not replication.ledger.shards.unmirrored())
    replication.replicator.close()
    assert failed
    assert len(snapshot_names(replication.store.list())) == 1


def test_the_lease_is_not_renewed_while_the_metadata_is_removed(
    replication: Replication,
) -> None:
    """A renewal would write the removed lease again, or count it as lost."""
    stopped: list[bool] = []

    def happens(name: str) -> None:
        if name.startswith("written .resumerge/done.json"):
            time.sleep(SECONDS)
            stopped.append(not replication.lease.is_lost)

    replication.store.fails = happens
    replication.begin()
    replication.finish()
    assert stopped == [True]


def test_small_companions_are_written_together_and_large_ones_alone(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order stays: config.json, without which nobody loads the model, is the last."""
    monkeypatch.setattr("resumerge.mirror.companions.SMALL", 100)
    small, large = replication.out.with_name("small"), replication.out.with_name("large")
    small.write_bytes(b"s" * 40)
    large.write_bytes(b"l" * 101)
    companions = [
        ("a", b"a" * 60), ("b", small), ("c", b"c"), ("d", large), ("e", b"e"),
        ("f", b"f" * 99), ("config.json", b"{}"),
    ]  # fmt: skip
    puts: list[list[str]] = []
    real = replication.store.put

    def put(files: dict[str, bytes], remove: tuple[str, ...] = ()) -> None:
        puts.append([name for name in files if not name.startswith(METADATA)])
        real(files, remove)

    monkeypatch.setattr(replication.store, "put", put)
    replicator = replication.begin()
    replicator.finish(lambda: companions, lambda: None)  # type: ignore[arg-type, return-value]
    assert [names for names in puts if names] == [["a", "b"], ["c"], ["e", "f"], ["config.json"]]
    assert replication.model()["d"] == 101
    assert check_mirror(replication.store).consistent


@pytest.mark.parametrize("renames", [False, True])
def test_a_file_of_the_user_is_not_replaced(replication: Replication, renames: bool) -> None:
    first = min(replication.shards())
    mine = replication.store.folder / first
    mine.write_bytes(b"mine")

    def rename(name: str, other: str) -> bool:
        mine.rename(replication.store.folder / other)
        return True

    if renames:
        replication.store.rename = rename  # type: ignore[method-assign]
    replication.begin()
    if not renames:
        with pytest.raises(Resumable, match=f"a file that this run did not write: {first}"):
            replication.finish()
        assert mine.read_bytes() == b"mine"
        return
    replication.finish()
    kept = f"{first}.kept"
    assert (replication.store.folder / kept).read_bytes() == b"mine"
    [event] = replication.ledger.events.all("file_set_aside")
    assert (event["data"]["name"], event["data"]["now"]) == (first, kept)
    assert any(note.endswith(f"renamed to {kept}") for note in replication.notes)


def test_a_shard_that_is_nowhere_is_told(replication: Replication) -> None:
    first = min(replication.shards())
    (replication.out / first).unlink()
    replication.begin()
    lost = rf"{first} is missing both from .* and from the mirror"
    with pytest.raises(Resumable, match=lost) as stopped:
        replication.finish()
    assert stopped.value.reason == Reason.SHARD_LOST
    assert not replication.model()


def test_what_another_machine_would_get_is_what_the_newest_snapshot_names(
    replication: Replication,
) -> None:
    shards = replication.ledger.shards.all()
    total = replication.ledger.totals().nbytes_committed
    replicator = replication.make()
    has_none = f"has 0 of {len(shards)} shards: another machine that resumes from it gets 0 B; "
    rest = f"{show_size(total)} more is only on this machine"
    assert replicator.handover_summary().endswith(has_none + rest)

    def happens(name: str) -> None:
        if (
            name.startswith("written .resumerge/ledger-")
            and replication.ledger.mirrored.checksums()
        ):
            raise OSError("out of order")

    replication.store.fails = happens
    replicator.start()
    wait_until(lambda: replication.ledger.mirrored.checksums() and replication.events())
    assert replicator.handover_summary().endswith(has_none + rest), "no snapshot names it"
    replication.store.fails = lambda name: None
    replication.finish()
    everything = f"has {len(shards)} of {len(shards)} shards: another machine that resumes from it "
    assert replicator.handover_summary().endswith(f"{everything}gets {show_size(total)}")


def test_companions_that_are_there_are_not_written_again(replication: Replication) -> None:
    """A manifest promises the companions, and a weak folder replaces a file in two steps."""
    written: list[str] = []
    replication.store.fails = lambda name: written.append(name)
    replication.make()
    conflicts = ConflictResolver(replication.store, lambda name, now: None, lambda nbytes: None)

    def upload(config: bytes) -> list[tuple[str, int, str]]:
        written.clear()
        companions = [("README.md", b"# a model"), ("config.json", config)]
        files = upload_companions(replication.store, companions, conflicts, lambda nbytes: None)
        return list(files)

    first = upload(b"{")  # an attempt was cut off
    assert written.count("written README.md") == written.count("written config.json") == 1
    assert upload(b"{") == first
    assert not any(name.startswith("written") for name in written)
    assert upload(b"{}") != first
    assert [name for name in written if name.startswith("written")] == ["written config.json"]


def test_whoever_may_stop_is_asked_before_and_told_after_each_group_of_companions(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.companions.SMALL", 100)
    replication.make()
    conflicts = ConflictResolver(replication.store, lambda name, now: None, lambda nbytes: None)
    companions = [("a", b"a" * 60), ("b", b"b" * 40), ("c", b"c" * 90)]
    moved: list[tuple[int, int]] = []

    def upload(nbytes: int) -> None:
        moved.append((nbytes, len(replication.model())))

    list(upload_companions(replication.store, companions, conflicts, upload))
    assert moved == [(0, 0), (100, 2), (0, 2), (90, 3)]
