"""Promise: what fails on a mirror is tried again and told; who waits for it is told why, and until
when."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_leases import ELSEWHERE, SECONDS, write
from made_up_mirrors import edited_manifest
from mirror_audit import check_mirror
from plain_folder import PlainFolder
from replication import COMPANIONS, Replication
from waiting import wait_until

from resumerge.errors import Resumable
from resumerge.mirror.names import MANIFEST_FILE, lease_name
from resumerge.mirror.stores.base import StoreError
from resumerge.retry import Backoff


def test_failures_are_told_once_and_so_is_their_end(replication: Replication) -> None:
    replication.fail_uploads(OSError("Transport endpoint is not connected"), times=5)
    began = time.monotonic()
    replication.begin()
    replication.finish()
    assert replication.events() == ["mirror_failing", "mirror_recovered"]
    failing, working = replication.notes
    assert {note.split(" at ")[0] for note in replication.waits} == {"Waiting for the mirror"}
    assert time.monotonic() - began < 4, "the pauses are those of the backoff"
    [failed] = replication.ledger.events.all("mirror_failing")
    assert "Transport endpoint" in failed["data"]["reason"]
    assert "fails; retrying: Transport" in failing
    assert "works again" in working


def test_a_store_that_asks_for_time_is_given_it(replication: Replication) -> None:
    """A shard that is sealed meanwhile does not shorten the pause."""
    asked: list[float] = []

    def happens(name: str) -> None:
        if name.startswith("upload "):
            asked.append(time.monotonic())
            if len(asked) == 1:
                raise StoreError("busy", retry_after=0.4)

    replication.store.fails = happens
    replicator = replication.begin()
    wait_until(lambda: asked)
    time.sleep(0.05)
    replicator.sealed(0)
    wait_until(lambda: len(asked) > 1)
    assert asked[1] - asked[0] == pytest.approx(0.4)


def test_a_new_shard_ends_one_pause(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.replicator.BACKOFF", Backoff(first=30, longest=60))
    tries: list[str] = []

    def happens(name: str) -> None:
        if name.startswith("upload "):
            tries.append(name)
            if len(tries) < 3:
                raise OSError("for a moment")

    replication.store.fails = happens
    replicator = replication.begin()
    for number in (1, 2):
        wait_until(lambda number=number: len(tries) == number)
        time.sleep(0.2)
        assert len(tries) == number
        replicator.sealed(0)
    wait_until(lambda: replication.ledger.mirrored.checksums())


def test_who_waits_is_told_of_it_all_the_time(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.replicator.CHECK_SECONDS", 0.1)
    replication.store.fails = lambda name: name == "written config.json" and time.sleep(1.2)
    replication.begin()
    wait_until(lambda: not replication.ledger.shards.unmirrored())
    replication.finish()
    assert len(replication.waits) >= 3
    assert all(
        text.endswith("lacks only the files beside the shards") for text in replication.waits
    )
    assert replication.notes == []


def test_who_need_not_wait_is_told_nothing(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.mirror.replicator.CHECK_SECONDS", 0.5)
    replication.begin()
    wait_until(lambda: not replication.ledger.shards.unmirrored())
    replication.finish()
    assert replication.waits == []


@pytest.mark.parametrize("then_delete", [False, True])
def test_waiting_ends_where_nothing_moves_for_too_long(
    replication: Replication, then_delete: bool
) -> None:
    replication.fail_uploads(OSError("out of order"))
    replicator = replication.begin(stall_seconds=0.6, then_delete=then_delete)
    began = time.monotonic()
    assert replicator.frees(5.0) is then_delete, "just begun"
    with pytest.raises(Resumable, match=r"made no progress for .* out of order") as stopped:
        replication.finish()
    assert 0.6 <= time.monotonic() - began < 0.7
    missing = len(replication.shards())
    assert f"It lacks {missing} of {missing} shards" in str(stopped.value)
    assert stopped.value.reason == "mirror"
    if then_delete:
        assert replicator.frees(0.1), "who has just begun to wait, waits"
        with pytest.raises(Resumable, match="The disk of this machine is full"):
            replicator.frees(0.7)


def test_who_is_denied_does_not_wait(replication: Replication) -> None:
    replication.fail_uploads(StoreError("no right to write", denied=True))
    replication.begin(stall_seconds=600)
    began = time.monotonic()
    with pytest.raises(Resumable, match="no right to write"):
        replication.finish()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("taken_over", ["", "and works", "and has finished"])
def test_the_last_answer_may_be_lost(
    replication: Replication, monkeypatch: pytest.MonkeyPatch, taken_over: str
) -> None:
    """The lease is removed like other metadata; that of a machine that took over stays.

    A caller that waits for the mirror continues only when the end of the failures is recorded.
    """
    pause = Backoff(first=0.8 * SECONDS, longest=SECONDS)
    monkeypatch.setattr("resumerge.mirror.replicator.BACKOFF", pause)
    answers = []

    def happens(name: str) -> None:
        if name == f"written {MANIFEST_FILE}" and not answers:
            answers.append(name)
            store = PlainFolder(replication.store.folder)
            if taken_over == "and works":
                write(store, ELSEWHERE, 2)
            elif taken_over:
                later = {"finished": "2031-01-01T00:00:00.000+00:00"}
                store.put({MANIFEST_FILE: edited_manifest(store.get(MANIFEST_FILE), **later)})
            raise OSError("Connection reset by peer")

    event = replication.ledger.events.add

    def slow_event(kind: str, **data: Any) -> None:
        time.sleep(0.3 if kind == "mirror_recovered" else 0)
        event(kind, **data)

    monkeypatch.setattr(replication.ledger.events, "add", slow_event)
    replication.store.fails = happens
    replication.begin()
    replication.finish()
    metadata = {name for name in replication.store.list() if name.startswith(".resumerge/")}
    assert metadata == {MANIFEST_FILE} | ({lease_name(2)} if taken_over == "and works" else set())
    assert answers and replication.events() == ["mirror_failing", "mirror_recovered"]


def test_a_store_that_is_busy_denies_nothing(replication: Replication) -> None:
    replication.fail_uploads(StoreError("busy", retry_after=0.1), times=4)
    replication.begin(stall_seconds=600)
    replication.finish()
    assert check_mirror(replication.store).state == "finished"


def test_bytes_that_arrive_are_progress(replication: Replication) -> None:
    """Each shard takes longer than the time after which a mirror without progress has failed."""
    replication.store.fails = lambda name: name.startswith("piece") and time.sleep(0.2)
    replication.begin(stall_seconds=0.6)
    replication.finish()
    assert check_mirror(replication.store).state == "finished"


def test_what_succeeds_is_progress_though_no_byte_of_it_was_told(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload takes ten seconds, and a mirror without progress fails after five."""
    now = [1000.0]
    monkeypatch.setattr("resumerge.mirror.transfer.time", SimpleNamespace(monotonic=lambda: now[0]))
    replication.store.pieces = 0
    waiting: list[bool] = []

    def happens(name: str) -> None:
        if name.startswith("upload "):
            waiting.append(replication.replicator.frees(waited=60.0))
            now[0] += 10

    replication.store.fails = happens
    replication.begin(then_delete=True, stall_seconds=5)
    replication.finish()
    assert len(waiting) > 2 and all(waiting)


def test_the_rate_is_kept(replication: Replication) -> None:
    nbytes = sum(path.stat().st_size for path in replication.out.glob("*.safetensors"))
    replication.begin(rate=nbytes, stall_seconds=0.2)
    began = time.monotonic()
    replication.finish()
    assert 0.9 < time.monotonic() - began < 1.1


def test_the_companions_are_made_again_after_a_failure(replication: Replication) -> None:
    made: list[None] = []

    def companions() -> list[tuple[str, bytes]]:
        made.append(None)
        if len(made) == 1:
            raise OSError("for a moment")
        return COMPANIONS

    replicator = replication.begin()
    replicator.finish(companions, lambda: None)
    assert len(made) == 2
    assert check_mirror(replication.store).state == "finished"


def test_who_waits_for_the_mirror_can_be_stopped(replication: Replication) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    replication.store.fails = lambda name: name.startswith("upload") and time.sleep(0.2)
    replicator = replication.begin()
    with pytest.raises(Stopped):
        replicator.finish(lambda: COMPANIONS, stop)
    began = time.monotonic()
    replicator.close()
    assert time.monotonic() - began < 2
    mirrored = replication.ledger.mirrored.checksums()
    time.sleep(0.3)
    assert replication.ledger.mirrored.checksums() == mirrored, "the thread has ended"
    assert len(mirrored) < len(replication.shards())


def test_an_upload_that_hangs_does_not_keep_the_process(replication: Replication) -> None:
    replication.store.fails = lambda name: name.startswith("upload ") and time.sleep(3600)
    replicator = replication.begin()
    time.sleep(0.2)
    began = time.monotonic()
    replicator.close()
    assert time.monotonic() - began < 2


def test_one_that_never_began_can_be_closed(replication: Replication) -> None:
    replication.make().close()
