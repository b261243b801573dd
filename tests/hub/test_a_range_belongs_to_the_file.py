"""Promise: what a server sends is appended only if it is the missing part of this very file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from begun_downloads import (
    CUT,
    MODEL,
    NAME,
    SIZE,
    begun,
    downloads,
    is_whole,
)
from hub_models import CONFIG, ref
from loopback_hub import Hub

from resumerge.digests import ExpectedContent
from resumerge.errors import Resumable
from resumerge.hub.file import HubFile
from resumerge.remote import download as module
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.remote.hub import open_hub_model


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataCache:
    return MetadataCache(tmp_path / "state")


@pytest.fixture
def source(hub: Hub, metadata: MetadataCache, sleeps: list[float]) -> Source:
    """Return a source whose download an earlier process began."""
    return begun(hub, metadata)


def fetch_again(source: Source, metadata: MetadataCache) -> list[str]:
    """Fetch the file, and return the kinds of the events."""
    events: list[str] = []
    callbacks = DownloadCallbacks(on_event=lambda kind, **data: events.append(kind))
    fetch(source, [NAME], metadata, callbacks)
    assert is_whole(source)
    return events


def statuses(hub: Hub) -> list[tuple[int, bool]]:
    """Return the status of each download, and whether its request had a range."""
    return [(r.status, "Range" in r.headers) for r in downloads(hub)]


def test_the_rest_is_asked_for_of_the_file_as_it_was(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    there = remote_file(source, NAME).partial.stat().st_size
    assert fetch_again(source, metadata) == []
    [request] = downloads(hub)
    assert request.headers["Range"] == f"bytes={there}-"
    assert request.headers["If-Range"] == f'"{hub.blob_of("org/model", NAME).cdn_etag}"'
    assert request.headers["Accept-Encoding"] == "identity", "a range of it is one of the file"
    assert metadata.validator(remote_file(source, NAME).partial) is None, "it is whole"


def test_a_part_that_is_longer_than_the_file_is_none_of_it(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    remote_file(source, NAME).partial.write_bytes(bytes(SIZE + 1))
    assert fetch_again(source, metadata) == []
    assert statuses(hub) == [(200, False)]


def test_a_file_that_was_not_begun_is_asked_for_whole(
    hub: Hub, metadata: MetadataCache, sleeps: list[float]
) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    assert fetch_again(source, metadata) == []
    [request] = downloads(hub)
    assert "Range" not in request.headers and "If-Range" not in request.headers


def test_where_the_file_was_another_no_byte_of_it_is_kept(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    """A server that does not know ``If-Range`` sends the rest of the file that it has now."""
    hub.heeds_if_range = False
    file = remote_file(source, NAME)
    file.partial.write_bytes(bytes(CUT))
    metadata.store_validator(file.partial, '"the other"')
    assert fetch_again(source, metadata) == [], "nothing was damaged"
    assert [r.status for r in downloads(hub)] == [206, 200]


Headers = dict[str, str | None]
"""Headers, with {there} in place of the number of bytes that are on the disk."""


def answer(hub: Hub, source: Source, headers: Headers) -> None:
    """Let the server send these headers, once."""
    there = remote_file(source, NAME).partial.stat().st_size
    says = {key: value and value.format(there=there) for key, value in headers.items()}
    hub.fail("/cdn/", says=says)


@pytest.mark.parametrize(
    "headers",
    [{"ETag": 'W/"weak"'}, {"ETag": None}, {"Content-Range": f"bytes {{there}}-{SIZE - 1}/*"}],
    ids=["a weak etag", "no etag", "a size that is unknown"],
)
def test_a_range_that_says_little_is_of_no_other_file(
    hub: Hub, source: Source, metadata: MetadataCache, headers: Headers
) -> None:
    answer(hub, source, headers)
    assert fetch_again(source, metadata) == []
    assert [r.status for r in downloads(hub)] == [206]


UNFIT: dict[str, Headers] = {
    "another first byte": {"Content-Range": f"bytes 0-{SIZE - 1}/{SIZE}"},
    "another size": {"Content-Range": f"bytes {{there}}-{SIZE - 1}/{SIZE + 1}"},
    "no range": {"Content-Range": None},
    "no bytes": {"Content-Range": f"items {{there}}-{SIZE - 1}/{SIZE}"},
    "compressed": {"Content-Encoding": "gzip"},
}


@pytest.mark.parametrize("name", UNFIT)
def test_another_range_than_was_asked_for_is_not_appended(
    hub: Hub, source: Source, metadata: MetadataCache, name: str
) -> None:
    answer(hub, source, UNFIT[name])
    assert fetch_again(source, metadata) == []
    assert statuses(hub) == [(206, True), (200, False)]


def test_a_server_whose_file_ends_before_is_asked_for_all_of_it(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    hub.fail("/cdn/", status=416)
    assert fetch_again(source, metadata) == []
    assert statuses(hub) == [(416, True), (200, False)]


def test_of_a_whole_file_what_is_there_is_skipped(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    """The bytes on the disk are kept: a wrong one among them is found at the end."""
    hub.ranges = False
    partial = remote_file(source, NAME).partial
    partial.write_bytes(b"?" + partial.read_bytes()[1:])
    assert fetch_again(source, metadata) == ["download_damaged"]
    assert [r.status for r in downloads(hub)] == [200, 200]


def test_a_whole_file_of_another_size_is_not_read(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    hub.ranges = False
    hub.fail("/cdn/", short_by=10)
    assert fetch_again(source, metadata) == []
    first, second = downloads(hub)
    assert first.sent < SIZE - 10, "left when it had said its length"
    assert second.sent == SIZE


def test_more_bytes_than_the_file_has_are_not_taken(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    blob = hub.blob_of("org/model", NAME)
    longer = type(blob)(blob.data + b"more", True)
    hub._blobs[blob.sha256] = (NAME, longer)
    there = remote_file(source, NAME).partial.stat().st_size
    hub.fail("/cdn/", says={"ETag": None, "Content-Range": f"bytes {there}-{SIZE + 3}/*"})
    hub.fail("/cdn/", status=503)

    def put_right(*_: Any) -> None:
        hub._blobs[blob.sha256] = (NAME, blob)

    file = remote_file(source, NAME)
    callbacks = DownloadCallbacks(sleep=put_right)
    fetch(source, [NAME], metadata, callbacks)
    assert is_whole(source)
    assert (file.content or file.blob).stat().st_size == SIZE


def test_a_server_that_is_wrong_for_good_ends_it(
    hub: Hub, source: Source, metadata: MetadataCache, sleeps: list[float]
) -> None:
    hub.ranges = False
    hub.fail("/cdn/", short_by=10, times=None)
    with pytest.raises(Resumable):
        fetch(source, [NAME], metadata)
    assert not (source.folder / NAME).exists()


def test_a_content_that_is_wrong_three_times_ends_it(
    hub: Hub, metadata: MetadataCache, sleeps: list[float]
) -> None:
    hub.commit("org/model", MODEL)
    source = open_hub_model(ref("org/model"))
    hub.forget_requests()
    hub.fail("/cdn/", wrong_byte=CUT, times=None)
    with pytest.raises(Resumable, match="was downloaded 3 times"):
        fetch(source, [NAME], metadata)
    assert len(downloads(hub)) == 3
    assert remote_file(source, NAME).partial.stat().st_size == 0


# Its name


def test_it_is_on_disk_before_it_has_its_name(
    hub: Hub, source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    partial = remote_file(source, NAME).partial
    real_sync, real_put = os.fdatasync, HubFile.put

    def sync(fd: int) -> None:
        real_sync(fd)
        if os.fstat(fd).st_ino == partial.stat().st_ino:
            done.append(("synced", os.fstat(fd).st_size))

    def put(file: HubFile, complete: Path, content: ExpectedContent) -> None:
        done.append(("named", complete.stat().st_size))
        real_put(file, complete, content)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(HubFile, "put", put)
    fetch_again(source, metadata)
    assert done == [("synced", SIZE), ("named", SIZE)]


def test_the_folder_is_on_disk_with_the_name(
    hub: Hub, source: Source, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    blob = remote_file(source, NAME).blob

    def sync_folder(storage: object, path: Path) -> None:
        synced.append((path, blob.exists()))
        raise OSError("a network filesystem that cannot")

    monkeypatch.setattr("resumerge.storage.Storage.sync_folder", sync_folder)
    fetch_again(source, metadata)
    assert (blob.parent, True) in synced


def test_what_it_is_is_known_afterwards(hub: Hub, source: Source, metadata: MetadataCache) -> None:
    fetch_again(source, metadata)
    file = remote_file(source, NAME)
    assert metadata.verdict(file.blob, file.etag) is True
    assert not file.partial.exists()
    assert (source.folder / NAME).readlink() == Path("../../blobs") / file.etag


def test_what_happens_is_told(hub: Hub, source: Source, metadata: MetadataCache) -> None:
    file = remote_file(source, NAME)
    there, inode = file.partial.stat().st_size, file.partial.stat().st_ino
    started: list[int] = []
    moved: list[int] = []
    responses: list[bool] = []
    callbacks = DownloadCallbacks(on_start=started.append, on_progress=moved.append)
    callbacks.check = lambda: responses.append(callbacks.response is not None)
    fetch(source, [NAME], metadata, callbacks)
    assert started == [inode] == [(source.folder / NAME).stat().st_ino]
    assert moved == sorted(set(moved)) and there < moved[0] and moved[-1] == SIZE
    assert any(responses), "another thread may abort it"
    assert callbacks.response is None


class Stopped(Exception):
    pass


@pytest.mark.parametrize("where", ["hashing", "receiving"])
def test_it_can_be_stopped(hub: Hub, source: Source, metadata: MetadataCache, where: str) -> None:
    callbacks = DownloadCallbacks()

    def check() -> None:
        if (where == "receiving") == (callbacks.response is not None):
            raise Stopped

    callbacks.check = check
    there = remote_file(source, NAME).partial.stat().st_size
    with pytest.raises(Stopped):
        fetch(source, [NAME], metadata, callbacks)
    assert remote_file(source, NAME).partial.stat().st_size >= there
    assert bool(downloads(hub)) is (where == "receiving")


# Of which there is another


def test_one_that_another_process_brought_meanwhile_is_not_downloaded(
    hub: Hub, source: Source, metadata: MetadataCache
) -> None:
    """A file is replaced only if it is the one known to be damaged, or if it is too short."""
    file = remote_file(source, NAME)
    file.blob.write_bytes(b"?" + MODEL[NAME][1:])
    damaged = file.inode
    module.download(file, metadata, DownloadCallbacks(), damaged=(damaged or 0) + 1)
    module.download(file, metadata, DownloadCallbacks())
    assert downloads(hub) == []
    module.download(file, metadata, DownloadCallbacks(), damaged=damaged)
    assert is_whole(source)
    file.blob.write_bytes(MODEL[NAME][:-1])
    module.download(file, metadata, DownloadCallbacks())
    assert file.blob.read_bytes() == MODEL[NAME], "what is too short is downloaded"


def replaced_by_a_file(file: HubFile) -> None:
    file.pointer.parent.mkdir(parents=True, exist_ok=True)
    file.pointer.write_bytes(b"?" + MODEL[NAME][1:])


def removed(file: HubFile) -> None:
    pass


@pytest.mark.parametrize("before", [replaced_by_a_file, removed])
def test_it_takes_the_place_of_what_is_damaged(
    hub: Hub, source: Source, metadata: MetadataCache, before: Callable[[HubFile], None]
) -> None:
    before(remote_file(source, NAME))
    fetch_again(source, metadata)
    assert remote_file(source, NAME).pointer.is_symlink()


def test_a_link_in_the_place_of_a_part_is_not_followed(
    hub: Hub, source: Source, metadata: MetadataCache, tmp_path: Path
) -> None:
    file = remote_file(source, NAME)
    file.partial.unlink()
    (tmp_path / "mine").write_bytes(b"mine")
    file.partial.symlink_to(tmp_path / "mine")
    with pytest.raises(OSError):
        fetch(source, [NAME], metadata)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_file_that_is_no_hash_is_compared_by_its_size_alone(
    hub: Hub, metadata: MetadataCache, sleeps: list[float]
) -> None:
    hub.commit("org/model", {**MODEL, "config.json": CONFIG})
    source = open_hub_model(ref("org/model"))
    listed = remote_file(source, NAME)
    file = HubFile(listed.model, listed.revision, NAME, SIZE, "no-hash-of-anything")
    module.download(file, metadata, DownloadCallbacks())
    assert file.blob.read_bytes() == MODEL[NAME]
