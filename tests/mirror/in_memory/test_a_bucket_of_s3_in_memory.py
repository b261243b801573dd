"""Promise: a mirror in a bucket of S3 sends each part once, compares what arrived, and leaves no
upload behind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_s3 import Api, MemoryBucket, Server
from store_conformance import Stopped, ignore
from virtual_machines import World

from resumerge.errors import InputError, StoreError
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.s3 import S3Client, S3Store
from resumerge.mirror.stores.buckets.s3_uploads import part_bytes
from resumerge.mirror.stores.registry import open_store

NAME = "model-00001-of-00002.safetensors"
KEY = f"p/{NAME}"
PART = 1000
DATA = bytes(range(250)) * 13  # three parts and a quarter
SHA256 = hashlib.sha256(DATA).hexdigest()


class Asked(Api):
    """A client that records its requests."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, World())
        self.asked: list[str] = []

    def _ask(self, what: str, do: Callable[[], Any], *changes: str) -> Any:
        self.asked.append(what)
        return super()._ask(what, do, *changes)


class Mirror:
    """A store below `p/` of a bucket, as a new process opens it."""

    def __init__(self, server: Server) -> None:
        bucket, client = MemoryBucket(server, World()), S3Client("bucket", "p")
        self.server, self.api = server, Asked(server)
        bucket._api = self.api
        client._objects = bucket
        self.store = S3Store("s3://bucket/p", client)

    def parts(self) -> list[str]:
        """Return the parts that were sent, in order."""
        return [what for what in self.api.asked if what.startswith("part ")]


@pytest.fixture
def mirror() -> Mirror:
    return Mirror(Server())


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file of four parts."""
    monkeypatch.setattr(s3_uploads, "PART", PART)
    path = tmp_path / "large"
    path.write_bytes(DATA)
    return path


def begin(mirror: Mirror, large: Path, parts: int = 2) -> None:
    """Upload some parts, and stop."""
    sent = 0

    def stop(nbytes: int) -> None:
        nonlocal sent
        sent += nbytes
        if sent > parts * PART:
            raise Stopped

    with pytest.raises(Stopped):
        mirror.store.upload(NAME, large, stop)
    mirror.api.asked.clear()


# What is sent


@pytest.mark.parametrize("nbytes", [0, 1, PART - 1, PART, PART + 1, 2 * PART, len(DATA)])
def test_what_is_there_is_not_sent_again(mirror: Mirror, large: Path, nbytes: int) -> None:
    data = DATA[:nbytes]
    large.write_bytes(data)
    moved: list[int] = []
    assert mirror.store.upload(NAME, large, moved.append) == hashlib.sha256(data).hexdigest()
    assert sum(moved) == nbytes
    assert mirror.server.objects[KEY][0] == data and not mirror.server.uploads
    assert len(mirror.parts()) == (-(-nbytes // PART) if nbytes > PART else 0)
    again = Mirror(mirror.server)
    moved.clear()
    assert again.store.upload(NAME, large, moved.append) == hashlib.sha256(data).hexdigest()
    assert again.api.asked == [f"head {KEY}"]
    assert len(moved) > nbytes // PART, "it can be stopped while it hashes"
    assert not any(moved)


def test_parts_that_are_there_are_not_sent_again(mirror: Mirror, large: Path) -> None:
    begin(mirror, large)
    again, moved = Mirror(mirror.server), list[int]()
    assert again.store.upload(NAME, large, moved.append) == SHA256
    assert again.parts() == ["part 3", "part 4"]
    assert sum(moved) == len(DATA) - 2 * PART
    assert again.store.get(NAME) == DATA and not mirror.server.uploads


def test_a_part_of_other_bytes_is_replaced(mirror: Mirror, large: Path) -> None:
    begin(mirror, large)
    data = b"?" + DATA[1:]
    large.write_bytes(data)
    mirror.store.upload(NAME, large, ignore)
    assert mirror.parts() == ["part 1", "part 3", "part 4"]
    assert mirror.store.get(NAME) == data


def test_the_newest_of_several_uploads_goes_on_and_the_others_end(
    mirror: Mirror, large: Path
) -> None:
    begin(mirror, large)
    mirror.server.uploads |= {"before it": (KEY, {}), "of another": (f"{KEY}.kept", {})}
    mirror.store.upload(NAME, large, ignore)
    assert mirror.parts() == ["part 3", "part 4"]
    assert [key for key, _ in mirror.server.uploads.values()] == [f"{KEY}.kept"]


def test_where_parts_are_not_listed_the_upload_begins_again(mirror: Mirror, large: Path) -> None:
    begin(mirror, large)
    mirror.server.lists_parts = False
    mirror.store.upload(NAME, large, ignore)
    assert len(mirror.parts()) == 4
    assert mirror.store.get(NAME) == DATA and not mirror.server.uploads


@pytest.mark.parametrize("answer", [(404, "NoSuchUpload"), (501, "NotImplemented")])
def test_a_server_that_lists_no_uploads_where_there_are_none(
    mirror: Mirror, large: Path, answer: tuple[int, str]
) -> None:
    mirror.server.no_uploads = answer
    mirror.store.abandon_uploads([NAME])
    assert mirror.store.upload(NAME, large, ignore) == SHA256


def test_an_upload_that_ended_meanwhile_is_aborted_all_the_same(
    mirror: Mirror, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(mirror, large)
    real = mirror.api.abort_multipart_upload

    def is_gone(**given: Any) -> None:
        mirror.server.uploads.clear()
        real(**given)

    monkeypatch.setattr(mirror.api, "abort_multipart_upload", is_gone)
    mirror.store.abandon_uploads([NAME])
    assert "abort" in mirror.api.asked[-1]


@pytest.mark.parametrize("nbytes", [len(DATA), PART], ids=["in parts", "in one request"])
def test_bytes_are_told_in_pieces_and_not_those_of_what_a_callback_asks_for(
    mirror: Mirror, large: Path, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that renews the lease would wait for itself if it were called for the renewal."""
    monkeypatch.setattr(s3_uploads, "REPORTED", 100)
    large.write_bytes(DATA[:nbytes])
    told: list[int] = []
    within: list[None] = []

    def moved(nbytes: int) -> None:
        assert not within, "called by the request that it makes"
        told.append(nbytes)
        within.append(None)
        mirror.store.put({"lease": b"renewed"})
        within.pop()

    mirror.store.upload(NAME, large, moved)
    assert sum(told) == nbytes and max(told) == 100


@pytest.mark.parametrize("nbytes", [len(DATA), PART], ids=["in parts", "in one request"])
def test_an_object_of_the_same_size_counts_by_its_etag(
    mirror: Mirror, large: Path, nbytes: int
) -> None:
    data = DATA[:nbytes]
    large.write_bytes(data)
    mirror.server.write(KEY, data[::-1])
    mirror.store.upload(NAME, large, ignore)
    assert mirror.store.get(NAME) == data
    mirror.server.write(KEY, data + b"more")
    mirror.store.upload(NAME, large, ignore)
    assert mirror.store.get(NAME) == data


def test_only_uploads_of_the_files_that_are_named_are_aborted(mirror: Mirror) -> None:
    keys = [KEY, "p/other", "q/other", NAME]
    for key in keys:
        mirror.api.create_multipart_upload(Key=key)
    mirror.store.abandon_uploads([NAME, "never-begun"])
    assert [key for key, _ in mirror.server.uploads.values()] == keys[1:]


# What arrived


@pytest.mark.parametrize("nbytes", [len(DATA), PART], ids=["in parts", "in one request"])
def test_where_etags_say_nothing_all_is_read_back(
    mirror: Mirror, large: Path, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DATA[:nbytes]
    large.write_bytes(data)
    mirror.server.encrypts = True
    moved: list[int] = []
    assert mirror.store.upload(NAME, large, moved.append) == hashlib.sha256(data).hexdigest()
    assert sum(moved) == 2 * nbytes, "there and back"
    write = Server.write

    def spoils(server: Server, key: str, data: bytes, etag: str = "") -> str:
        return write(server, key, data[:-1] + b"?", etag)

    monkeypatch.setattr(Server, "write", spoils)
    with pytest.raises(StoreError, match="differs from what was sent"):
        mirror.store.upload(NAME, large, ignore)
    assert mirror.store.list() == {}, "nobody takes it for the file"


# Conditions


@pytest.mark.parametrize("nbytes", [len(DATA), PART], ids=["in parts", "in one request"])
def test_what_was_created_is_not_replaced(mirror: Mirror, large: Path, nbytes: int) -> None:
    data = DATA[:nbytes]
    large.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    mirror.server.write(KEY, b"another machine's")
    assert mirror.store.create(NAME, large, ignore) is None
    assert mirror.store.get(NAME) == b"another machine's" and not mirror.server.uploads
    assert mirror.store.upload(NAME, large, ignore) == sha256, "an upload replaces"
    assert mirror.store.create(NAME, large, ignore) == sha256, "as if the answer had been lost"
    assert mirror.store.get(NAME) == data


def test_a_small_file_is_replaced_under_the_condition_that_it_is_the_one_that_was_read(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, server = mirror.store, mirror.server
    assert store.put_if_absent("a", b"1") and not store.put_if_absent("a", b"2")
    assert store.put_if_unchanged("a", b"2", b"1")
    real = mirror.api.put_object

    def another_is_faster(**given: Any) -> Any:
        monkeypatch.undo()
        server.write("p/a", b"another machine's")
        return real(**given)

    monkeypatch.setattr(mirror.api, "put_object", another_is_faster)
    assert not store.put_if_unchanged("a", b"3", b"2", ["b"])
    assert store.get("a") == b"another machine's"


def test_what_is_there_already_with_the_new_content_is_ones_own(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to an earlier request may be lost, or that request may arrive only now."""
    store, server = mirror.store, mirror.server
    server.write("p/a", b"mine")
    assert store.put_if_absent("a", b"mine")
    assert store.put_if_unchanged("a", b"mine", b"before")
    real = mirror.api.put_object

    def arrives(**given: Any) -> Any:
        monkeypatch.undo()
        server.write("p/a", b"mine 2")
        return real(**given)

    monkeypatch.setattr(mirror.api, "put_object", arrives)
    assert store.put_if_unchanged("a", b"mine 2", b"mine")


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        (Server(conditional=False), "ignores If-None-Match"),
        (Server(matches=False), "ignores If-Match"),
        (Server(refuses_conditions=True), "has no conditional writes"),
    ],
    ids=["ignores them", "ignores one", "refuses them"],
)
def test_without_conditions_a_file_that_is_there_is_not_replaced_either(
    server: Server, fault: str, tmp_path: Path
) -> None:
    store = Mirror(server).store
    assert store.lease_obstacle() == f"it {fault}, so that two machines could hold one lease"
    assert store.settle_seconds > 0 and store.list() == {}
    assert store.put_if_absent("a", b"1")
    assert not store.put_if_absent("a", b"2")
    assert not store.put_if_unchanged("a", b"3", b"2")
    assert store.get("a") == b"1"
    assert store.put_if_unchanged("a", b"3", b"1")
    assert store.get("a") == b"3"
    (tmp_path / "small").write_bytes(b"4")
    assert store.create("a", tmp_path / "small", ignore) == hashlib.sha256(b"4").hexdigest()


def test_whether_it_can_hold_a_lease_is_asked_again_if_an_answer_is_lost(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mirror.api.put_object

    def repeated(**given: Any) -> Any:
        monkeypatch.undo()
        real(**given)
        return real(**given)

    monkeypatch.setattr(mirror.api, "put_object", repeated)
    with pytest.raises(StoreError, match="An answer of the server of s3://bucket/p was lost"):
        mirror.store.lease_obstacle()
    assert mirror.store.lease_obstacle() == "" and mirror.store.list() == {}
    mirror.api.asked.clear()
    assert mirror.store.lease_obstacle() == "" and not mirror.api.asked, "it is known now"


def test_what_is_put_is_compared_before_anything_is_removed(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.store.put({"old": b"1"})
    write = Server.write
    monkeypatch.setattr(
        Server, "write", lambda server, key, data, etag="": write(server, key, b"?" + data, etag)
    )
    with pytest.raises(StoreError, match="new in s3://bucket/p differs from what was sent"):
        mirror.store.put({"new": b"2"}, ["old"])
    assert mirror.store.get("old") == b"1"


def test_a_copy_is_compared_before_the_original_goes(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.store.put({"a": b"1"})

    def spoils(Key: str, **given: Any) -> None:
        mirror.server.write(Key, b"?")

    monkeypatch.setattr(mirror.api, "copy_object", spoils)
    with pytest.raises(StoreError, match="b in s3://bucket/p differs from a"):
        mirror.store.rename("a", "b")
    assert mirror.store.get("a") == b"1"


def test_a_download_goes_on_after_what_is_here(mirror: Mirror, tmp_path: Path) -> None:
    mirror.server.write(KEY, DATA)
    here, moved = tmp_path / "here", list[int]()
    here.write_bytes(DATA[:PART])
    mirror.store.download(NAME, here, moved.append)
    assert here.read_bytes() == DATA and sum(moved) == len(DATA) - PART
    mirror.api.asked.clear()
    mirror.store.download(NAME, here, moved.append)
    assert mirror.api.asked == ["list"], "all of it is here"
    mirror.server.write(KEY, b"")
    mirror.store.download(NAME, tmp_path / "empty", moved.append)
    assert (tmp_path / "empty").read_bytes() == b""


def test_what_is_read_to_be_hashed_is_told(mirror: Mirror) -> None:
    mirror.server.write(KEY, DATA)
    moved: list[int] = []
    assert mirror.store.sha256(NAME, moved.append) == SHA256
    assert sum(moved) == len(DATA)


# Names and sizes


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_an_address_is_that_of_a_bucket_or_of_a_prefix(scheme: str) -> None:
    for address in (f"{scheme}://bucket", f"{scheme}://bucket/a/b"):
        assert open_store(address).url == open_store(f"{address}/").url == address
        with pytest.raises(InputError, match="Offline mode is on") as refused:
            open_store(address, offline=True)
        assert refused.value.problems[0].where == address


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/a", "a//b", "", ".", "a\\b"])
def test_names_that_lead_out_are_refused(mirror: Mirror, tmp_path: Path, name: str) -> None:
    store, path = mirror.store, tmp_path / "local"
    path.write_bytes(b"x")
    store.lease_obstacle()
    mirror.api.asked.clear()
    for ask in (
        lambda: store.put({name: b"x"}),
        lambda: store.put({}, remove=[name]),
        lambda: store.put_if_absent(name, b"x"),
        lambda: store.put_if_unchanged(name, b"x", b"y"),
        lambda: store.put_if_unchanged(name, b"x", None),
        lambda: store.upload(name, path, ignore),
        lambda: store.create(name, path, ignore),
        lambda: store.rename(name, "a"),
        lambda: store.rename("a", name),
        lambda: store.get(name),
        lambda: store.listed(name),
        lambda: store.sha256(name, ignore),
    ):
        with pytest.raises(InputError, match="points outside"):
            ask()
    assert mirror.api.asked == []
    with pytest.raises(InputError, match="points outside"):
        store.download(name, tmp_path / "x", ignore)
    mirror.server.write("p/../a", b"x")
    with pytest.raises(InputError, match="points outside"):
        store.list()


def test_the_files_are_those_below_the_prefix(mirror: Mirror) -> None:
    for key in ("p/", "p/folder/", "p2/a", "pa", "a"):
        mirror.server.write(key, b"")
    mirror.store.put({"folder/a": b"1"})
    assert mirror.store.list() == {"folder/a": 1}
    assert mirror.store.listed("folder/a") is not None and mirror.store.listed("folder") is None
    mirror.store.put({}, ["folder/a", "a"])
    assert mirror.server.objects.keys() == {"p/", "p/folder/", "p2/a", "pa", "a"}


def test_parts_grow_so_that_there_are_not_too_many() -> None:
    part, most = s3_uploads.PART, s3_uploads.MOST_PARTS
    sizes = [part_bytes(n) // part for n in (0, 1, part * most, part * most + 1, 2 * part * most)]
    assert sizes == [1, 1, 1, 2, 2]
