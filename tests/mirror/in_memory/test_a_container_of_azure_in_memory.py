"""Promise: a mirror in a container of Azure asks for what it means: whole files, each block once,
nothing of anybody else's written over."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from memory_azure import Server, md5, open_container, refused
from store_conformance import CHECKS, Check, Place, Stopped, ignore, its_address_opens_it_again

from resumerge.buckets.errors import Changed
from resumerge.errors import StoreError
from resumerge.mirror.stores.buckets import azure
from resumerge.mirror.stores.buckets.azure import AzureStore, block_bytes

NAME = "model-00001-of-00002.safetensors"
BLOCK = 1000
DATA = bytes(range(250)) * 13  # three blocks and a quarter


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def store(server: Server) -> AzureStore:
    return open_container(server)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file of four blocks."""
    monkeypatch.setattr(azure, "UPLOADED_BLOCK", BLOCK)
    path = tmp_path / "large"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS if check is not its_address_opens_it_again],
    ids=lambda check: check.__name__,
)
def test_the_contract_of_stores(check: Check, server: Server, tmp_path: Path) -> None:
    check(Place(lambda: open_container(server), tmp_path))


def test_it_can_hold_a_lease(server: Server, store: AzureStore) -> None:
    assert store.lease_obstacle() == "" and store.settle_seconds == 0
    assert server.blobs == {}


def test_the_files_are_those_below_the_prefix(server: Server, store: AzureStore) -> None:
    server.write("p2/a", b"a neighbour's")
    server.write("a", b"somebody's")
    store.put({"a": b"mine"})
    assert store.list() == {"a": 4}
    store.put({}, ["a"])
    assert server.blobs.keys() == {"p2/a", "a"}


# Uploads


def blocks(server: Server) -> int:
    return [call for call, _ in server.asked].count("block")


def test_a_file_is_sent_in_blocks_and_its_hash_is_stated(
    server: Server, store: AzureStore, large: Path
) -> None:
    moved: list[int] = []
    assert store.upload(NAME, large, moved.append) == hashlib.sha256(DATA).hexdigest()
    assert [n for n in moved if n] == [BLOCK, BLOCK, BLOCK, len(DATA) - 3 * BLOCK]
    assert server.blobs[f"p/{NAME}"][::2] == (DATA, md5(DATA))
    server.asked.clear()
    moved.clear()
    assert store.upload(NAME, large, moved.append) == hashlib.sha256(DATA).hexdigest()
    assert [call for call, _ in server.asked] == ["properties"], "it is there already"
    assert len(moved) >= 2 and not any(moved), "it can be stopped while it hashes"


def test_what_an_interrupted_upload_sent_is_not_sent_again(
    server: Server, store: AzureStore, large: Path
) -> None:
    sent = 0

    def stop(nbytes: int) -> None:
        nonlocal sent
        sent += nbytes
        if sent > 2 * BLOCK:
            raise Stopped

    with pytest.raises(Stopped):
        store.upload(NAME, large, stop)
    assert blocks(server) == 2 and store.list() == {}
    moved: list[int] = []
    open_container(server).upload(NAME, large, moved.append)
    assert blocks(server) == 4
    assert sum(moved) == len(DATA) - 2 * BLOCK
    assert moved.count(0) >= 4, "it can be stopped before each block, sent or not"
    assert store.get(NAME) == DATA


def test_a_block_counts_for_its_place_and_its_content(
    server: Server, store: AzureStore, large: Path
) -> None:
    """Each of several equal blocks is sent; a block with other bytes is replaced."""
    same = bytes(BLOCK) * 3
    large.write_bytes(same)
    store.upload(NAME, large, ignore)
    assert blocks(server) == 3 and store.get(NAME) == same
    server.blobs.clear()
    server.blocks[f"p/{NAME}"] = {azure._block_name(0, b"other"): b"other"}
    store.upload(NAME, large, ignore)
    assert blocks(server) == 6 and store.get(NAME) == same


def test_blocks_of_a_stranger_are_discarded(server: Server, store: AzureStore, large: Path) -> None:
    """The server refuses block names of two lengths in one blob."""
    server.blocks[f"p/{NAME}"] = {"YQ==": b"a stranger's"}
    store.upload(NAME, large, ignore)
    assert store.get(NAME) == DATA


def test_an_object_of_the_same_size_is_compared_by_its_hash(
    server: Server, store: AzureStore, large: Path
) -> None:
    other = DATA[::-1]
    for stated in (md5(other), None):
        server.write(f"p/{NAME}", other, stated)
        store.upload(NAME, large, ignore)
        assert server.blobs[f"p/{NAME}"][::2] == (DATA, md5(DATA))
    server.write(f"p/{NAME}", DATA + b"more", md5(DATA))
    store.upload(NAME, large, ignore)
    assert store.list() == {NAME: len(DATA)}


def test_what_was_created_is_not_replaced(server: Server, store: AzureStore, large: Path) -> None:
    sha256 = hashlib.sha256(DATA).hexdigest()
    server.write(f"p/{NAME}", b"another machine's", md5(b"another machine's"))
    assert store.create(NAME, large, ignore) is None
    assert store.get(NAME) == b"another machine's"
    store.put({}, [NAME])
    assert store.create(NAME, large, ignore) == sha256
    assert store.create(NAME, large, ignore) == sha256, "as if the answer had been lost"
    server.write(f"p/{NAME}", b"old")
    assert store.upload(NAME, large, ignore) == sha256, "an upload replaces"
    assert store.get(NAME) == DATA


def test_blocks_grow_so_that_there_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    block, most = azure.UPLOADED_BLOCK, azure.MOST_BLOCKS
    sizes = [block_bytes(n) // block for n in (0, 1, block * most, block * most + 1)]
    assert sizes == [1, 1, 1, 2]


# The others


@pytest.mark.parametrize("polls", [0, 3])
def test_a_copy_has_ended_before_the_original_goes(
    server: Server, store: AzureStore, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure, "COPY_POLL_SECONDS", 0.0)
    store.put({"a": b"1"})
    server.polls, server.ending = polls, "aborted"
    with pytest.raises(StoreError, match="could not be copied: aborted"):
        store.rename("a", "b")
    assert store.get("a") == b"1"
    server.polls, server.ending = polls, "success"
    assert store.rename("a", "b")
    assert server.polls <= 0 and store.list() == {"b": 1}


def test_its_clock_is_the_servers(server: Server, store: AzureStore) -> None:
    server.at = datetime(2020, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert store.now() == server.at
    assert server.asked == [("list", "p/")]
    server.at = None
    assert store.now() is None


def test_a_small_file_is_written_under_its_condition_alone(
    server: Server, store: AzureStore
) -> None:
    assert store.put_if_absent("a", b"1") and not store.put_if_absent("a", b"2")
    assert not store.put_if_unchanged("a", b"3", b"2") and store.get("a") == b"1"
    assert store.put_if_unchanged("a", b"3", b"1") and store.get("a") == b"3"
    put = store._client.put
    version = server.blobs["p/a"][1].strip('"')
    server.write("p/a", b"another machine's")
    with pytest.raises(Changed):
        put("a", b"mine", version=version)
    put("a", b"mine")
    assert store.get("a") == b"mine"


def test_a_file_that_is_denied_is_no_missing_one(
    server: Server, store: AzureStore, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise refused(403, "AuthorizationFailure")

    monkeypatch.setattr(Server, "check", denied)
    with pytest.raises(StoreError, match="HTTP 403"):
        store.put({"a": b"1"})
    with pytest.raises(StoreError, match="HTTP 403"):
        store.upload(NAME, large, ignore)
