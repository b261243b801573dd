"""What fails on the way to the Hub is an OSError, and the same call again does what it should."""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import Hub, Shaky
from repo_of_the_hub import REPO, SHARD, URL, commits, nothing, shard

from resumerge.errors import Reason, Resumable
from resumerge.mirror.stores import hub_client
from resumerge.mirror.stores.base import StoreError
from resumerge.mirror.stores.hub import HubStore
from resumerge.mirror.stores.hub_client import CommitConflict, hub_errors

STEPS = {
    "create": "/api/repos/create",
    "listing": "/api/models/org/merged/revision",
    "preupload": "/preupload/",
    "batch": "/objects/batch",
    "put": "/cdn/upload/",
    "part": "part=2",
    "complete": "/info/lfs/complete",
    "verify": "/info/lfs/verify",
    "commit": "/commit/",
}
"""Requests of an upload and a write, by a part of their paths."""


def bring(store: HubStore, folder: Path) -> str:
    """Upload a shard, write the snapshot that names it, and return the shard's SHA-256."""
    sha256 = store.upload(SHARD, shard(folder), nothing)
    store.put({".resumerge/new": b"names it"}, remove=[".resumerge/old"])
    return sha256


def is_brought(hub: Hub, folder: Path) -> bool:
    return hub.contents(REPO) == {
        SHARD: shard(folder).read_bytes(),
        ".resumerge/new": b"names it",
    }


@pytest.fixture
def store(hub: Hub) -> HubStore:
    """Return the store of a repo with an old snapshot, which has not read the repo yet."""
    hub.part_bytes = 200_000
    HubStore(URL).put({".resumerge/old": b"names nothing"})
    return HubStore(URL)


@pytest.mark.parametrize("status", [500, 503, 429, 522])
@pytest.mark.parametrize("step", STEPS)
def test_an_error_of_the_hub_is_told_at_once_and_the_second_try_succeeds(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path, step: str, status: int,
    soak: bool,
) -> None:  # fmt: skip
    if status != 503 and step not in ("put", "commit") and not soak:
        pytest.skip("each step, and each status, once: every pair with --soak")
    hub.part_bytes = None if step == "put" else 200_000
    hub.fail(STEPS[step], status=status, headers={"Retry-After": "7"})
    with pytest.raises(StoreError, match=f"HTTP {status}") as caught:
        bring(store, tmp_path)
    assert caught.value.retry_after == 7
    assert not caught.value.denied
    assert sleeps == []  # who calls decides when to try again
    sha256 = bring(store, tmp_path)
    assert sha256 == hashlib.sha256(shard(tmp_path).read_bytes()).hexdigest()
    assert is_brought(hub, tmp_path)
    assert commits(hub) == 2


def test_a_signed_address_that_expired_is_no_denial(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path
) -> None:
    """The Hub's storage answers 403 to an expired address, and the next try gets a new one."""
    hub.part_bytes = None
    hub.fail(STEPS["put"], status=403)
    with pytest.raises(StoreError, match="HTTP 403") as caught:
        bring(store, tmp_path)
    assert not caught.value.denied
    bring(store, tmp_path)
    assert is_brought(hub, tmp_path)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("wrong", ["cut_upload", "lose_answer"])
def test_a_connection_that_breaks_costs_at_most_another_try(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path, step: str, wrong: str
) -> None:
    """The connection breaks in the middle of a request, or between the request and its answer."""
    hub.part_bytes = None if step == "put" else 200_000
    hub.fail(STEPS[step], **{wrong: 10 if wrong == "cut_upload" else True})
    for _ in range(2):
        try:
            bring(store, tmp_path)
        except StoreError as error:
            assert "org/merged" in str(error)
    bring(store, tmp_path)
    assert is_brought(hub, tmp_path)
    assert commits(hub) == 2


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path
) -> None:
    hub.fail("/commit/", lose_answer=True)
    with pytest.raises(StoreError):
        bring(store, tmp_path)
    assert is_brought(hub, tmp_path)
    bring(store, tmp_path)
    assert commits(hub) == 2


def test_a_claim_whose_answer_was_lost_is_ours_the_second_time(
    hub: Hub, store: HubStore, sleeps: list[float]
) -> None:
    hub.fail("/commit/", lose_answer=True)
    with pytest.raises(StoreError):
        store.put_if_absent(".resumerge/lease-000001.json", b"mine")
    assert store.put_if_absent(".resumerge/lease-000001.json", b"mine")
    assert not HubStore(URL).put_if_absent(".resumerge/lease-000001.json", b"another's")
    assert commits(hub) == 2


def test_parts_that_arrived_are_not_sent_again_within_a_call(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path
) -> None:
    hub.fail("part=2", cut_upload=50_000)
    moved: list[int] = []
    store.upload(SHARD, shard(tmp_path), moved.append)
    assert 300_000 <= sum(moved) <= 400_000
    assert [r.path[-1] for r in hub.requests if "part=" in r.path] == ["1", "2", "2"]


def test_reading_from_a_hub_that_fails(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path
) -> None:
    bring(store, tmp_path)
    asks: list[Any] = [
        lambda: store.get(".resumerge/new"),
        lambda: store.list(),
        lambda: store.sha256(SHARD, nothing),
        lambda: store.now(),
    ]
    for ask in asks:
        hub.fail(status=503, headers={"Retry-After": "3"})
        with pytest.raises(StoreError) as caught:
            ask()
        assert caught.value.retry_after == 3
        assert ask()
    hub.fail("resolve", status=503)
    hub.fail("/cdn/", cut_after=1000)
    store.download(SHARD, tmp_path / "back", nothing)
    assert (tmp_path / "back").read_bytes() == shard(tmp_path).read_bytes()


def test_what_was_damaged_on_the_way_back_is_fetched_again(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    bring(store, tmp_path)
    hub.fail("/cdn/", wrong_byte=77)
    store.download(SHARD, tmp_path / "back", nothing)
    assert (tmp_path / "back").read_bytes() == shard(tmp_path).read_bytes()


def test_a_hub_that_is_gone(hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path) -> None:
    hub.gone = True
    for ask in (
        lambda: store.list(),
        lambda: store.get("a"),
        lambda: store.put({"a": b"1"}),
        lambda: store.put_if_absent("a", b"1"),
        lambda: store.upload(SHARD, shard(tmp_path), nothing),
        lambda: store.download(SHARD, tmp_path / "x", nothing),
    ):
        with pytest.raises(StoreError, match="cannot be reached"):
            ask()


def test_nobody_listening(hub: Hub, sleeps: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="cannot be reached"):
        HubStore(URL).list()


@pytest.mark.parametrize("step", ["put", "commit", "verify"])
def test_a_hub_that_hangs_is_given_up(
    hub: Hub,
    store: HubStore,
    sleeps: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    from loopback_hub.pointing import forget_connections

    hub.part_bytes = None
    monkeypatch.setattr(hub_client, "IDLE_TIMEOUT", 0.3)
    forget_connections()
    hub.fail(STEPS[step], stall_after=20, times=None)
    with pytest.raises(StoreError):
        bring(store, tmp_path)
    hub.faults.clear()
    hub.over.set()  # nobody hangs any more
    monkeypatch.setattr(hub_client, "IDLE_TIMEOUT", 60.0)
    forget_connections()
    bring(store, tmp_path)
    assert is_brought(hub, tmp_path)


def test_what_the_store_has_dropped_is_sent_again(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    """The Hub's storage drops contents that nobody commits after some time."""
    store.upload(SHARD, shard(tmp_path), nothing)
    hub.stored.clear()
    with pytest.raises(StoreError, match="does not exist"):
        store.put({".resumerge/new": b"names it"})
    assert ".resumerge/new" not in hub.contents(REPO)
    store.put({".resumerge/new": b"names it"}, remove=[".resumerge/old"])
    assert is_brought(hub, tmp_path)


def test_what_arrived_is_compared_with_what_was_sent(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    store.upload(SHARD, shard(tmp_path), nothing)
    sha256 = hashlib.sha256(shard(tmp_path).read_bytes()).hexdigest()
    right = hub.stored[sha256]
    hub.stored[sha256] = bytes([right[0] ^ 1]) + right[1:]
    with pytest.raises(StoreError, match="in org/merged differs from what was sent"):
        store.put({".resumerge/new": b"names it"})
    hub.stored[sha256] = right
    store.put({})
    assert hub.contents(REPO)[SHARD] == right


def test_a_commit_of_others_at_the_same_time_is_followed_by_ours(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    hub.fail("/commit/", status=412, times=2)
    bring(store, tmp_path)
    assert is_brought(hub, tmp_path)
    hub.fail("/commit/", status=409, times=None)
    with pytest.raises(CommitConflict):
        store.put({"a": b"1"})


@pytest.mark.parametrize(
    "error",
    [Resumable(Reason.MIRROR_TAKEN_OVER, "gone"), OSError("no lease"), ConnectionError("x")],
)
@pytest.mark.parametrize("part_bytes", [None, 2_000_000])
def test_an_upload_is_cut_short_by_whoever_counts_its_bytes(
    hub: Hub, store: HubStore, tmp_path: Path, error: Exception, part_bytes: int | None
) -> None:
    hub.part_bytes = part_bytes
    path, told = shard(tmp_path, 20_000_000), [0]

    def moved(nbytes: int) -> None:
        told[0] += nbytes
        if told[0] > 3_000_000:
            raise error

    with pytest.raises(type(error)) as caught:
        store.upload(SHARD, path, moved)
    assert caught.value is error
    assert told[0] < 3_100_000
    assert hub.requests[-1].received < 4_000_000
    assert commits(hub) == 1
    store.upload(SHARD, path, nothing)
    store.put({})
    assert hub.contents(REPO)[SHARD] == path.read_bytes()


def test_hashing_can_be_stopped_and_is_done_once(
    hub: Hub, store: HubStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path, 20_000_000)

    def stop(nbytes: int) -> None:
        raise Resumable(Reason.MIRROR, "by a signal")

    with pytest.raises(Resumable):
        store.upload(SHARD, path, stop)
    assert hub.requests[-1].path.endswith("/commit/main")  # of the fixture: nothing was asked since
    hub.fail("/preupload/", status=503)
    with pytest.raises(StoreError):
        store.upload(SHARD, path, nothing)
    reads: list[int] = []
    store.upload(SHARD, path, reads.append)
    assert reads.count(0) == 0  # hashing tells no bytes, and was done
    assert sum(reads) == 20_000_000


@pytest.mark.parametrize("seed", range(4))
def test_a_shaky_hub_is_consistent_at_every_commit(
    hub: Hub, store: HubStore, sleeps: list[float], tmp_path: Path, seed: int
) -> None:
    """No snapshot is ever there without the shards that it names, whatever fails."""
    hub.shaky = Shaky(seed, share=0.25)
    names = [SHARD.replace("00001", f"{n:05}", 1) for n in range(1, 6)]
    for count, name in enumerate(names, 1):
        insist(lambda: store.upload(name, shard(tmp_path, 50_000, count), nothing))  # noqa: B023
        snapshot = {f".resumerge/ledger-{count}": "\n".join(names[:count]).encode()}
        old = [f".resumerge/ledger-{count - 1}"]
        insist(lambda: store.put(snapshot, old))  # noqa: B023
    assert hub.shaky.drawn
    hub.shaky = None
    for files in hub.repos[REPO].commits.values():
        ledgers = [name for name in files if name.startswith(".resumerge/ledger-")]
        assert len(ledgers) <= 1
        for name in ledgers:
            assert set(files[name].data.decode().split("\n")) <= files.keys()
    assert hub.contents(REPO).keys() == {*names, ".resumerge/ledger-5", ".resumerge/old"}
    assert commits(hub) == 6


def insist(ask: Any) -> None:
    for _ in range(100):
        try:
            ask()
            return
        except StoreError:
            continue
    raise AssertionError("it never succeeds")


def test_failures_print_nothing(
    hub: Hub,
    store: HubStore,
    sleeps: list[float],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warnings of huggingface_hub contain signed addresses, which must not be printed."""
    caplog.set_level(logging.DEBUG, "huggingface_hub")
    hub.part_bytes = None
    hub.fail("/cdn/upload/", cut_upload=1000, times=2)
    bring(store, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_one_place_may_be_used_by_several_threads(
    hub: Hub, store: HubStore, tmp_path: Path
) -> None:
    failures: list[BaseException] = []

    def heartbeat(number: int) -> None:
        try:
            for turn in range(5):
                store.put({f"beat-{number}": b"%d" % turn})
                store.list()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=heartbeat, args=[n]) for n in range(3)]
    for thread in threads:
        thread.start()
    for seed in range(5):
        store.upload(f"{seed}.safetensors", shard(tmp_path, seed=seed), nothing)
    store.put({})
    for thread in threads:
        thread.join()
    assert failures == []
    assert hub.contents(REPO) == (
        {f"{seed}.safetensors": shard(tmp_path, seed=seed).read_bytes() for seed in range(5)}
        | {f"beat-{number}": b"4" for number in range(3)}
        | {".resumerge/old": b"names nothing"}
    )


@pytest.mark.parametrize(
    ("error", "is_the_hubs"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError(errno.EACCES, "Permission denied", "a file"), False),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), True),
        (ValueError("not JSON"), True),
        (KeyError("of ours"), False),
    ],
)
def test_what_is_wrong_with_this_machine_is_no_failure_of_the_hub(
    error: Exception, is_the_hubs: bool
) -> None:
    with pytest.raises(StoreError if is_the_hubs else type(error)) as caught, hub_errors(REPO):
        raise error
    assert isinstance(caught.value, StoreError) is is_the_hubs
