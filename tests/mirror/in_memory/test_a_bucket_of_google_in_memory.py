"""Promise: a mirror in a bucket of Google asks for what it means: whole files, none of them sent
again, nothing of anybody else's written over."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from memory_google import Blob, Server, open_bucket
from store_conformance import CHECKS, Check, Place, Stopped, ignore, its_address_opens_it_again

from resumerge.errors import StoreError
from resumerge.mirror.stores.buckets import google
from resumerge.mirror.stores.buckets.google import GoogleStore

NAME = "model-00001-of-00002.safetensors"
KEY = f"p/{NAME}"
DATA = bytes(range(250)) * 13
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def store(server: Server) -> GoogleStore:
    return open_bucket(server)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file of four chunks."""
    monkeypatch.setattr(google, "CHUNK", 1000)
    monkeypatch.setattr(google, "UPLOAD_PIECE_BYTES", 300)
    path = tmp_path / "large"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS if check is not its_address_opens_it_again],
    ids=lambda check: check.__name__,
)
def test_the_contract_of_stores(check: Check, server: Server, tmp_path: Path) -> None:
    check(Place(lambda: open_bucket(server), tmp_path))


def test_it_can_hold_a_lease(server: Server, store: GoogleStore) -> None:
    assert store.lease_obstacle() == "" and store.settle_seconds == 0
    assert server.objects == {}


def test_a_file_is_sent_once_in_pieces(server: Server, store: GoogleStore, large: Path) -> None:
    moved: list[int] = []
    assert store.upload(NAME, large, moved.append) == SHA256
    assert sum(moved) == len(DATA) and max(moved) == 300
    assert server.objects[KEY][0] == DATA
    server.asked.clear()
    moved.clear()
    assert store.upload(NAME, large, moved.append) == SHA256
    assert [call for call, _ in server.asked] == ["reload"], "it is there already"
    assert len(moved) >= 2 and not any(moved), "it can be stopped while it hashes"
    server.write(KEY, DATA[::-1])
    assert store.upload(NAME, large, ignore) == SHA256
    assert store.get(NAME) == DATA, "another one of this size"


def test_what_arrived_is_compared(
    server: Server, store: GoogleStore, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.keeps = 0.5
    with pytest.raises(StoreError, match="differs from what was sent"):
        store.upload(NAME, large, ignore)

    def keeps_part_of_a_chunk(*_: object, **__: object) -> None:
        raise ValueError("bytes are missing")

    monkeypatch.setattr(Blob, "upload_from_file", keeps_part_of_a_chunk)
    with pytest.raises(StoreError, match="kept a part of what was sent") as failed:
        store.upload(NAME, large, ignore)
    assert not failed.value.denied


def test_an_upload_can_be_stopped(server: Server, store: GoogleStore, large: Path) -> None:
    def stop(nbytes: int) -> None:
        if nbytes:
            raise Stopped

    with pytest.raises(Stopped):
        store.upload(NAME, large, stop)
    assert store.list() == {}


def test_what_was_created_is_not_replaced(server: Server, store: GoogleStore, large: Path) -> None:
    server.write(KEY, b"another machine's")
    assert store.create(NAME, large, ignore) is None
    assert store.get(NAME) == b"another machine's"
    assert store.upload(NAME, large, ignore) == SHA256, "an upload replaces"
    assert store.create(NAME, large, ignore) == SHA256, "as if the answer had been lost"
    store.put({}, [NAME])
    assert store.create(NAME, large, ignore) == SHA256


def test_a_long_copy_is_asked_for_until_it_is_done(server: Server, store: GoogleStore) -> None:
    store.put({"a": b"1"})
    server.rewrites = 3
    assert store.rename("a", "b")
    assert store.list() == {"b": 1}
    assert server.asked.count(("rewrite", "p/a")) == 4


def test_its_clock_is_the_servers(server: Server, store: GoogleStore) -> None:
    server.at = datetime(2020, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert store.now() == server.at
    assert store.list() == {}, "the object that told the time is gone"


def test_a_small_file_is_written_under_its_condition_alone(
    server: Server, store: GoogleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.put_if_absent("a", b"1") and not store.put_if_absent("a", b"2")
    assert not store.put_if_unchanged("a", b"3", b"2") and store.get("a") == b"1"
    assert store.put_if_unchanged("a", b"2", b"1")
    real = Blob.upload_from_string

    def another_is_faster(blob: Blob, *given: object, **more: object) -> None:
        monkeypatch.undo()
        server.write("p/a", b"another machine's")
        real(blob, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Blob, "upload_from_string", another_is_faster)
    assert not store.put_if_unchanged("a", b"3", b"2")
    assert store.get("a") == b"another machine's"


def test_the_files_are_those_below_the_prefix(server: Server, store: GoogleStore) -> None:
    for key in ("p/", "p2/a", "a"):
        server.write(key, b"")
    store.put({"a": b"1"})
    assert store.list() == {"a": 1}
    store.put({}, ["a", "missing"])
    assert server.objects.keys() == {"p/", "p2/a", "a"}
