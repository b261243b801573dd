"""Promise: a file of a bucket is downloaded as it was listed, compared and recorded, or not at all;
a request that fails for a while is repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from model_in_a_bucket import ADDRESS, DATA, MODEL, listed, server_folder, the_file
from served_objects import Answer, Objects, Request, failure

from resumerge.buckets.file import DOWNLOAD_PIECE_BYTES
from resumerge.errors import InputError, Resumable
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.files import ensure_cached
from resumerge.storage import Storage


def test_what_arrives_is_recorded_and_linked(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    file = the_file(objects, home)
    etag = objects.stored[f"m/{MODEL}"].etag
    ensure_cached(file, metadata)
    assert file.blob.read_bytes() == file.pointer.read_bytes() == DATA
    assert file.blob.parent == home / "resumerge/buckets" / server_folder(objects) / "box/m/blobs"
    assert file.pointer.parent.parent == file.blob.parent.with_name("snapshots")
    assert file.lock.parent == file.blob.parent.with_name("locks")
    assert json.loads(file.recorded.read_bytes()) == {
        "name": MODEL,
        "etag": etag,
        "size": len(DATA),
        "xxh3": xxhash.xxh3_128_hexdigest(DATA),
    }
    assert {path.name for path in file.blob.parent.iterdir()} == {
        file.blob.name,
        file.recorded.name,
    }
    [get] = objects.asked(f"m/{MODEL}")
    assert (get.headers["if-match"], "range" in get.headers) == (f'"{etag}"', False)
    assert metadata.verdict(file.blob, etag) is True
    objects.requests.clear()
    ensure_cached(file, metadata)
    assert objects.requests == []


def test_the_record_is_on_disk_before_the_content_has_its_name(
    objects: Objects, home: Path, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A content without its record would count as damaged."""
    file, seen = the_file(objects, home), list[tuple[bool, bool, bool]]()
    real = Storage.sync_file

    def sync_file(storage: Storage, path: Path) -> None:
        complete = json.loads(path.read_bytes())["size"] == len(DATA)
        seen.append((complete, file.recorded.exists(), file.blob.exists()))
        real(storage, path)

    def sync_folder(storage: Storage, path: Path) -> None:
        assert path == file.blob.parent and file.recorded.exists()

    monkeypatch.setattr(Storage, "sync_file", sync_file)
    monkeypatch.setattr(Storage, "sync_folder", sync_folder)
    ensure_cached(file, metadata)
    assert seen == [(True, False, False)]


def test_the_rest_is_asked_for_of_the_same_object(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    file = the_file(objects, home)
    file.blob.parent.mkdir(parents=True)
    file.partial.write_bytes(DATA[:1000])
    ensure_cached(file, metadata)
    [get] = objects.asked(f"m/{MODEL}")
    assert (get.headers["range"], get.headers["if-match"]) == ("bytes=1000-", f'"{file.etag}"')
    assert file.pointer.read_bytes() == DATA and not file.partial.exists()


def test_it_is_read_in_small_pieces(objects: Objects, home: Path) -> None:
    """A kill loses no more than one piece."""
    objects.put("m/large", bytes(3 * DOWNLOAD_PIECE_BYTES + 1))
    file = listed().files["large"]
    with file.request(0) as response:
        assert [len(chunk) for chunk in response.chunks] == [*[DOWNLOAD_PIECE_BYTES] * 3, 1]
    assert DOWNLOAD_PIECE_BYTES <= 1 << 16


@pytest.mark.parametrize("ignored", ["", "if-match"])
def test_another_object_is_not_taken(
    objects: Objects, home: Path, metadata: MetadataCache, ignored: str
) -> None:
    """Another object is refused even if it has the same bytes, or the server ignores conditions."""
    file = the_file(objects, home)
    objects.ignored = {ignored}
    objects.put(f"m/{MODEL}", DATA)
    with pytest.raises(Resumable, match="it is another object") as told:
        ensure_cached(file, metadata)
    assert told.value.reason == "source_changed" and f"{ADDRESS}/{MODEL} changed" in str(told.value)
    with pytest.raises(Resumable, match="it is another object"):
        file.read_range(0, 10)
    del objects.stored[f"m/{MODEL}"]
    with pytest.raises(Resumable, match="it is gone") as told:
        ensure_cached(file, metadata)
    assert told.value.reason == "source_changed" and file.content is None


def test_what_fails_for_a_while_is_asked_for_again(
    objects: Objects, home: Path, metadata: MetadataCache, sleeps: list[float]
) -> None:
    """The program repeats a request, besides boto3's own attempts, before it gives up for now."""
    file, left = the_file(objects, home), [5]

    def choose(request: Request) -> Answer | None:
        left[0] -= 1
        return failure(503, "SlowDown") if left[0] >= 0 else None

    objects.choose = choose
    ensure_cached(file, metadata)
    assert file.pointer.read_bytes() == DATA and len(sleeps) == 5
    left[0] = 1000
    with pytest.raises(Resumable, match="HTTP 503") as told:
        file.read_range(0, 10)
    assert told.value.reason == "network" and f"{ADDRESS}/{MODEL}" in str(told.value)
    assert 1000 - left[0] == 3 * 5, "boto3's attempts at each of ours"


def test_a_server_that_asks_for_patience_is_given_it(
    objects: Objects, home: Path, sleeps: list[float]
) -> None:
    """The program waits up to a few minutes; a server that asks for more is given up for now."""
    left = [3]

    def choose(request: Request) -> Answer | None:
        left[0] -= 1
        return Answer(503, b"", {"Retry-After": "77"}) if left[0] >= 0 else None

    objects.choose = choose
    assert MODEL in listed().files and 77 in sleeps
    objects.choose = lambda request: Answer(503, b"", {"Retry-After": "7777"})
    del sleeps[:]
    with pytest.raises(Resumable, match="HTTP 503"):
        listed()
    assert 7777 not in sleeps


def test_a_cache_that_cannot_be_written_is_named(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    file = the_file(objects, home)
    home.mkdir()
    (home / "resumerge").write_text("a file in the folder's place")
    with pytest.raises(InputError, match="The cache folder is not usable") as told:
        ensure_cached(file, metadata)
    assert str(home / "resumerge" / "buckets") in told.value.problems[0].expected
    assert told.value.problems[0].where == f"{ADDRESS}/{MODEL}"


def test_one_that_is_denied_is_refused(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    file = the_file(objects, home)
    objects.choose = lambda request: failure(403)
    with pytest.raises(InputError, match="The bucket cannot be read") as told:
        ensure_cached(file, metadata)
    assert told.value.problems[0].where == ADDRESS


def test_a_content_with_another_hash_is_never_used(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    """The server states an MD5 that the bytes do not have."""
    objects.put(f"m/{MODEL}", DATA, etag="0" * 32)
    file, events = the_file(objects, home), list[str]()
    callbacks = DownloadCallbacks(on_event=lambda kind, **facts: events.append(kind))
    with pytest.raises(Resumable, match=r"was downloaded 3 times.*ETag 0000") as told:
        ensure_cached(file, metadata, callbacks)
    assert told.value.reason == "source_unavailable" and f"{ADDRESS}/{MODEL}" in str(told.value)
    assert events == ["download_damaged"] * 3
    assert file.content is None and not file.recorded.exists()


def test_the_size_is_asked_for_again(objects: Objects, home: Path) -> None:
    """The size is that of the listed object; another object in its place is an error."""
    file = the_file(objects, home)
    assert replace(file, size=7).refreshed() == file
    objects.put(f"m/{MODEL}", DATA)
    with pytest.raises(Resumable, match="another object"):
        file.refreshed()
