"""The contract of `Store` as checks that every kind of store has to pass.

`CHECKS` has a function for each promise, which is called with a `Place`. It raises an
`AssertionError` if the promise is broken::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check: Check, tmp_path: Path) -> None:
        bucket = make_an_empty_bucket()
        check(Place(lambda: MyStore(bucket), tmp_path))
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from resumerge.mirror.stores.base import Store
from resumerge.mirror.stores.registry import is_mirror_url, normalise, open_store

DATA = bytes(range(256)) * 2000
SHARD = "model-00001-of-00002.safetensors"


@dataclass
class Place:
    """The place where one check works.

    Args:
        new_store: opens a store on a place that is empty at first; each call is like another
            process.
        folder: an empty local folder.
    """

    new_store: Callable[[], Store]
    folder: Path

    @cached_property
    def store(self) -> Store:
        """The first store on the place."""
        return self.new_store()

    @cached_property
    def local(self) -> Path:
        """A file to upload, with the bytes `DATA`."""
        path = self.folder / "local-file"
        path.write_bytes(DATA)
        return path

    def files(self) -> set[str]:
        """Return the names of the files in the store that it did not make itself."""
        return self.store.list().keys() - self.store.own_files


Check = Callable[[Place], None]


class Stopped(Exception):
    """The error that a callback raises to stop a transfer."""


def ignore(nbytes: int) -> None:
    """Do nothing: the progress of the transfer does not matter."""


def stop(nbytes: int) -> None:
    """Stop a transfer at its first bytes."""
    if nbytes:
        raise Stopped


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def raises(kind: type[Exception]) -> Iterator[None]:
    """Check that the code in this context raises an exception."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def upload(store: Store, path: Path) -> str:
    """Upload a file, again after an error: a store may notice late that it continued another."""
    try:
        return store.upload(SHARD, path, ignore)
    except OSError:
        return store.upload(SHARD, path, ignore)


def at_once(count: int, do: Callable[[int], None]) -> None:
    """Call a function with the numbers from 0 in as many threads, which start together."""
    start, errors = threading.Barrier(count), []

    def work(number: int) -> None:
        start.wait()
        try:
            do(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# The address


def its_address_opens_it_again(place: Place) -> None:
    again = open_store(place.store.url)
    assert type(again) is type(place.store)
    assert again.url == place.store.url == normalise(place.store.url)


def its_address_is_recognised(place: Place) -> None:
    place.store.put({".resumerge/a": b"1"})
    assert is_mirror_url(place.store.url)


# Small files


def a_new_place_is_empty(place: Place) -> None:
    assert not place.files()


def what_is_put_is_listed_and_read(place: Place) -> None:
    files = {"config.json": b"{}", ".resumerge/a-1.db": DATA, "folder/inside/b": b"", "c": b"c"}
    place.store.put(files)
    for reader in (place.store, place.new_store()):
        found = {name: n for name, n in reader.list().items() if name not in reader.own_files}
        assert found == {name: len(data) for name, data in files.items()}
        assert {name: reader.get(name) for name in files} == files


def names_of_any_characters(place: Place) -> None:
    names = [
        "a b+c",
        "50%.txt",
        "100%25.txt",
        "ä–文.json",
        "q?x=1&y",
        "#1",
        "a~'(!)*;:@=,$",
        "A",
        "a",
    ]
    place.store.put({name: name.encode() for name in names})
    assert place.files() == set(names)
    for name in names:
        assert place.new_store().get(name) == name.encode()
        assert place.store.sha256(name, ignore) == sha256(name.encode())
    place.store.put({}, names[1:])
    assert place.files() == {names[0]}


def put_replaces_and_removes(place: Place) -> None:
    place.store.put({"a": b"old and longer", "b": b"1", "c": b"2"})
    place.store.put({"a": b"new"}, ["b", "never-existed"])
    assert place.store.get("a") == b"new"
    assert place.files() == {"a", "c"}
    place.store.put({}, ["c"])
    assert place.files() == {"a"}


def a_file_that_is_too_large_is_not_held(place: Place) -> None:
    place.store.put({"a": DATA})
    assert place.store.get("a", len(DATA)) == DATA
    assert place.store.get("a", len(DATA) - 1) == b""


def a_file_that_does_not_exist(place: Place) -> None:
    for _ in range(2):
        with raises(FileNotFoundError):
            place.store.get("missing")
        with raises(FileNotFoundError):
            place.store.download("missing", place.folder / "x", ignore)
        assert place.store.sha256("missing", ignore) is None
        assert not place.store.put_if_unchanged("missing", b"new", b"old")
        place.store.put({"another": b"1"})  # now the place exists


# Small files of which one writer is to win


def put_if_absent_writes_once(place: Place) -> None:
    store, other = place.store, place.new_store()
    assert store.put_if_absent(".resumerge/lease", b"first")
    time.sleep(store.settle_seconds)
    assert not other.put_if_absent(".resumerge/lease", b"second")
    assert store.get(".resumerge/lease") == other.get(".resumerge/lease") == b"first"


def put_if_unchanged_replaces_what_it_knows(place: Place) -> None:
    store, other = place.store, place.new_store()
    assert store.put_if_unchanged("a", b"1", None)
    assert not other.put_if_unchanged("a", b"other", None)
    assert other.put_if_unchanged("a", b"2", b"1")
    assert not store.put_if_unchanged("a", b"3", b"1", ["b"])
    assert store.get("a") == other.get("a") == b"2"
    store.put({"b": b"1"})
    assert not store.put_if_unchanged("a", b"3", b"1", ["b"])
    assert place.files() == {"a", "b"}
    assert store.put_if_unchanged("a", b"3", b"2", ["b", "never-existed"])
    assert place.files() == {"a"}
    assert other.get("a") == b"3"
    store.put({"b": b"1"})
    assert store.put_if_unchanged("a", b"3", b"2", ["b"]), "an answer may have been lost"
    assert place.files() == {"a"}, "and the rest was not done"


def of_concurrent_writers_one_wins(place: Place) -> None:
    """Check the winner after the settle time: on a weak store several writers may get True."""
    for turn in range(3):
        name, stores = f".resumerge/lease-{turn}", [place.new_store() for _ in range(4)]
        won: list[int] = []

        def write(number: int) -> None:
            if stores[number].put_if_absent(name, b"%d" % number):  # noqa: B023
                won.append(number)  # noqa: B023

        at_once(len(stores), write)
        settle = stores[0].settle_seconds
        time.sleep(settle)
        assert int(stores[0].get(name)) in won
        assert settle or len(won) == 1


# Large files


def an_upload_arrives_whole(place: Place) -> None:
    moved: list[int] = []
    assert place.store.upload(SHARD, place.local, moved.append) == sha256(DATA)
    assert sum(moved) >= len(DATA)
    for reader in (place.store, place.new_store()):
        assert reader.list()[SHARD] == len(DATA)
        assert reader.sha256(SHARD, ignore) == sha256(DATA)
        assert reader.get(SHARD) == DATA
        place.store.put({".resumerge/names-it": b"1"})


def an_upload_is_repeated_and_replaced(place: Place) -> None:
    for data in (DATA, DATA, b"x" * len(DATA), b"short", b""):
        place.local.write_bytes(data)
        assert upload(place.store, place.local) == sha256(data)
        place.store.put({})
        assert place.store.sha256(SHARD, ignore) == sha256(data)
        assert place.store.list()[SHARD] == len(data)


def an_upload_that_is_stopped_is_done_again(place: Place) -> None:
    with raises(Stopped):
        place.store.upload(SHARD, place.local, stop)
    for again in (place.store, place.new_store()):
        assert upload(again, place.local) == sha256(DATA)
    assert place.store.get(SHARD) == DATA


def abandoned_uploads_leave_what_is_whole(place: Place) -> None:
    assert upload(place.store, place.local) == sha256(DATA)
    place.store.put({"a": b"1"})
    with raises(Stopped):
        place.local.write_bytes(DATA[::-1])
        place.store.upload("other.safetensors", place.local, stop)
    place.new_store().abandon_uploads(["other.safetensors"])
    assert place.store.get(SHARD) == DATA
    assert place.store.get("a") == b"1"


def a_download_arrives_whole_also_after_a_stop(place: Place) -> None:
    back = place.folder / "back"
    place.store.upload(SHARD, place.local, ignore)
    place.store.put({})
    with raises(Stopped):
        place.store.download(SHARD, back, stop)
    moved: list[int] = []
    place.store.download(SHARD, back, moved.append)
    assert back.read_bytes() == DATA
    assert sum(moved) <= len(DATA)


def what_is_longer_here_is_downloaded_anew(place: Place) -> None:
    """Check that a local file which is longer than the store's is not continued."""
    back = place.folder / "back"
    place.store.upload(SHARD, place.local, ignore)
    place.store.put({})
    back.write_bytes(b"x" * (len(DATA) + 1))
    place.store.download(SHARD, back, ignore)
    assert back.read_bytes() == DATA


# What a store may lack


def a_file_is_renamed_or_stays(place: Place) -> None:
    place.store.put({"a": b"1"})
    renamed = place.store.rename("a", "a.kept")
    assert place.files() == ({"a.kept"} if renamed else {"a"})
    assert place.store.get("a.kept" if renamed else "a") == b"1"


def its_clock_is_right_or_missing(place: Place) -> None:
    place.store.put({"a": b"1"})
    at = place.store.now()
    assert at is None or abs((datetime.now(UTC) - at).total_seconds()) < 60


def its_own_files_are_no_problem(place: Place) -> None:
    place.store.put({"a": b"1"})
    assert not place.store.is_placeholder("a", 1)
    assert place.store.check_address() == []


def it_can_hold_a_lease_or_says_why_not(place: Place) -> None:
    before = place.files()
    assert isinstance(place.store.lease_obstacle(), str)
    assert place.files() == before


CHECKS: tuple[Check, ...] = (
    its_address_opens_it_again,
    its_address_is_recognised,
    a_new_place_is_empty,
    what_is_put_is_listed_and_read,
    names_of_any_characters,
    put_replaces_and_removes,
    a_file_that_is_too_large_is_not_held,
    a_file_that_does_not_exist,
    put_if_absent_writes_once,
    put_if_unchanged_replaces_what_it_knows,
    of_concurrent_writers_one_wins,
    an_upload_arrives_whole,
    an_upload_is_repeated_and_replaced,
    an_upload_that_is_stopped_is_done_again,
    abandoned_uploads_leave_what_is_whole,
    a_download_arrives_whole_also_after_a_stop,
    what_is_longer_here_is_downloaded_anew,
    a_file_is_renamed_or_stays,
    its_clock_is_right_or_missing,
    its_own_files_are_no_problem,
    it_can_hold_a_lease_or_says_why_not,
)
