"""Tests of the contract of `Store`, for everybody who writes one. They need pytest.

A test module defines a subclass, whose `new_store` opens a store on a place that is empty at the
beginning of each test::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def new_store(self) -> Callable[[], Store]:
            bucket = make_an_empty_bucket()
            return lambda: MyStore(bucket)
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.registry import is_mirror_url, normalise, open_store

DATA = bytes(range(256)) * 2000
SHARD = "model-00001-of-00002.safetensors"


class Stopped(Exception):
    """Raised by a callback to stop a transfer."""


def ignore(nbytes: int) -> None:
    """A callback for transfers whose progress does not matter."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def upload(store: Store, path: Path) -> str:
    """Upload a file. A store may find only by comparing that it continued a different file."""
    try:
        return store.upload(SHARD, path, ignore)
    except OSError:
        return store.upload(SHARD, path, ignore)


class StoreConformance:
    """Every test gets an empty place. `new_store` opens it; each call is like another process."""

    @pytest.fixture
    def new_store(self) -> Callable[[], Store]:
        raise NotImplementedError("return a function that opens a store on an empty place")

    @pytest.fixture
    def store(self, new_store: Callable[[], Store]) -> Store:
        return new_store()

    @pytest.fixture
    def local(self, tmp_path: Path) -> Path:
        """A file to upload."""
        path = tmp_path / "local-file"
        path.write_bytes(DATA)
        return path

    # The address

    def test_its_address_opens_it_again(self, store: Store) -> None:
        again = open_store(store.url)
        assert type(again) is type(store)
        assert again.url == store.url == normalise(store.url)

    def test_its_address_is_recognised(self, store: Store) -> None:
        store.put({".resumerge/a": b"1"})
        assert is_mirror_url(store.url)

    # Small files

    def test_a_new_place_is_empty(self, store: Store) -> None:
        assert not store.list().keys() - store.own_files

    def test_what_is_put_is_listed_and_read(
        self, store: Store, new_store: Callable[[], Store]
    ) -> None:
        files = {"config.json": b"{}", ".resumerge/a-1.db": DATA, "folder/inside/b": b"", "c": b"c"}
        store.put(files)
        for reader in (store, new_store()):
            found = {name: n for name, n in reader.list().items() if name not in reader.own_files}
            assert found == {name: len(data) for name, data in files.items()}
            assert {name: reader.get(name) for name in files} == files

    def test_put_replaces_and_removes(self, store: Store) -> None:
        store.put({"a": b"old and longer", "b": b"1", "c": b"2"})
        store.put({"a": b"new"}, ["b", "never-existed"])
        assert store.get("a") == b"new"
        assert store.list().keys() - store.own_files == {"a", "c"}
        store.put({}, ["c"])
        assert store.list().keys() - store.own_files == {"a"}

    def test_a_file_that_is_too_large_is_not_held(self, store: Store) -> None:
        store.put({"a": DATA})
        assert store.get("a", len(DATA)) == DATA
        assert store.get("a", len(DATA) - 1) == b""

    def test_a_file_that_does_not_exist(self, store: Store, tmp_path: Path) -> None:
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                store.get("missing")
            with pytest.raises(FileNotFoundError):
                store.download("missing", tmp_path / "x", ignore)
            assert store.sha256("missing", ignore) is None
            store.put({"another": b"1"})  # now the place exists

    def test_put_if_absent_writes_once(self, store: Store, new_store: Callable[[], Store]) -> None:
        assert store.put_if_absent(".resumerge/lease", b"first")
        time.sleep(store.settle_seconds)
        other = new_store()
        assert not other.put_if_absent(".resumerge/lease", b"second")
        assert store.get(".resumerge/lease") == other.get(".resumerge/lease") == b"first"

    def test_of_concurrent_writers_one_wins(self, new_store: Callable[[], Store]) -> None:
        """On a weak store several get True; the file says whose it is after the settle time."""
        for turn in range(3):
            name, stores = f".resumerge/lease-{turn}", [new_store() for _ in range(4)]
            start, won = threading.Barrier(4), []

            def write(number: int, store: Store) -> None:
                start.wait()  # noqa: B023
                if store.put_if_absent(name, b"%d" % number):  # noqa: B023
                    won.append(number)  # noqa: B023

            threads = [threading.Thread(target=write, args=pair) for pair in enumerate(stores)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            settle = stores[0].settle_seconds
            time.sleep(settle)
            assert int(stores[0].get(name)) in won
            assert settle or len(won) == 1

    # Large files

    def test_an_upload_arrives_whole(
        self, store: Store, new_store: Callable[[], Store], local: Path
    ) -> None:
        moved: list[int] = []
        assert store.upload(SHARD, local, moved.append) == sha256(DATA)
        assert sum(moved) >= len(DATA)
        for reader in (store, new_store()):
            assert reader.list()[SHARD] == len(DATA)
            assert reader.sha256(SHARD, ignore) == sha256(DATA)
            assert reader.get(SHARD) == DATA
            store.put({".resumerge/names-it": b"1"})

    def test_an_upload_is_repeated_and_replaced(self, store: Store, local: Path) -> None:
        for data in (DATA, DATA, b"x" * len(DATA), b"short", b""):
            local.write_bytes(data)
            assert upload(store, local) == sha256(data)
            store.put({})
            assert store.sha256(SHARD, ignore) == sha256(data)
            assert store.list()[SHARD] == len(data)

    def test_an_upload_that_is_stopped_is_done_again(
        self, store: Store, new_store: Callable[[], Store], local: Path
    ) -> None:
        def stop(nbytes: int) -> None:
            if nbytes:
                raise Stopped

        with pytest.raises(Stopped):
            store.upload(SHARD, local, stop)
        for again in (store, new_store()):
            assert upload(again, local) == sha256(DATA)
        assert store.get(SHARD) == DATA

    def test_a_download_arrives_whole_also_after_a_stop(
        self, store: Store, local: Path, tmp_path: Path
    ) -> None:
        store.upload(SHARD, local, ignore)
        store.put({})

        def stop(nbytes: int) -> None:
            if nbytes:
                raise Stopped

        with pytest.raises(Stopped):
            store.download(SHARD, tmp_path / "back", stop)
        moved: list[int] = []
        store.download(SHARD, tmp_path / "back", moved.append)
        assert (tmp_path / "back").read_bytes() == DATA
        assert sum(moved) <= len(DATA)

    # What a store may lack

    def test_a_file_is_renamed_or_stays(self, store: Store) -> None:
        store.put({"a": b"1"})
        renamed = store.rename("a", "a.kept")
        assert store.list().keys() - store.own_files == ({"a.kept"} if renamed else {"a"})
        assert store.get("a.kept" if renamed else "a") == b"1"

    def test_its_clock_is_right_or_missing(self, store: Store) -> None:
        store.put({"a": b"1"})
        at = store.now()
        assert at is None or abs((datetime.now(UTC) - at).total_seconds()) < 60

    def test_its_own_files_are_no_problem(self, store: Store) -> None:
        store.put({"a": b"1"})
        assert not store.is_placeholder("a", 1)
        assert store.check_address() == []
