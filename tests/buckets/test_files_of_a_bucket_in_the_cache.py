"""Promise: of a model in a bucket the cache has what was listed, compared and recorded; it is found
again without the network, and nothing else is taken for it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from bucket_merges import CONFIG, adapter, safetensors, shard, sharded, whole
from served_objects import Answer, Objects, Request, failure

from resumerge.buckets.file import DOWNLOAD_PIECE_BYTES, BucketFile, model_folder
from resumerge.buckets.model import (
    BucketModel,
    bucket_model,
    cached_bucket_files,
    cached_bucket_model,
)
from resumerge.errors import InputError, Resumable
from resumerge.recipe.references import read_reference
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.bucket import open_bucket_model
from resumerge.sources.remote.files import ensure_cached, fetch, remote_file
from resumerge.sources.types import Source
from resumerge.storage import Storage

ADDRESS, MODEL = "s3://box/m", "model.safetensors"
FILES = whole(1)
DATA = FILES[MODEL]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's place."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


@pytest.fixture
def objects(served: Objects, home: Path, sleeps: list[float]) -> Objects:
    """A model in one file; nobody waits."""
    served.clear()
    served.upload("m", FILES)
    return served


@pytest.fixture
def metadata() -> MetadataCache:
    return MetadataCache()


def opened(address: str = ADDRESS, **given: object) -> Source:
    return open_bucket_model(read_reference(address), **given)  # type: ignore[arg-type]


def listed(address: str = ADDRESS, file: str = "") -> BucketModel:
    return bucket_model(address, file)


def the_file(objects: Objects, home: Path) -> BucketFile:
    found = listed().files[MODEL]
    objects.requests.clear()
    return found


# A download


def test_what_arrives_is_recorded_and_linked(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    file = the_file(objects, home)
    etag = objects.stored[f"m/{MODEL}"].etag
    ensure_cached(file, metadata)
    assert file.blob.read_bytes() == file.pointer.read_bytes() == DATA
    assert file.blob.parent == home / "resumerge/buckets" / _server(objects) / "box/m/blobs"
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


def _server(objects: Objects) -> str:
    return objects.address.removeprefix("http://").replace(":", "_")


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
    """A kill loses no more than one."""
    objects.put("m/large", bytes(3 * DOWNLOAD_PIECE_BYTES + 1))
    file = listed().files["large"]
    with file.request(0) as response:
        assert [len(chunk) for chunk in response.chunks] == [*[DOWNLOAD_PIECE_BYTES] * 3, 1]
    assert DOWNLOAD_PIECE_BYTES <= 1 << 16


@pytest.mark.parametrize("ignored", ["", "if-match"])
def test_another_object_is_not_taken(
    objects: Objects, home: Path, metadata: MetadataCache, ignored: str
) -> None:
    """Also by a server that knows no conditions, and of the same bytes."""
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
    """More often than boto3 does, which counts with it; and then given up for now."""
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
    """But one that asks for more than a few minutes is given up for now."""
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
    """The server says an MD5 that the bytes do not have."""
    objects.put(f"m/{MODEL}", DATA, etag="0" * 32)
    file, events = the_file(objects, home), list[str]()
    callbacks = DownloadCallbacks(on_event=lambda kind, **facts: events.append(kind))
    with pytest.raises(Resumable, match=r"was downloaded 3 times.*ETag 0000") as told:
        ensure_cached(file, metadata, callbacks)
    assert told.value.reason == "source_unavailable" and f"{ADDRESS}/{MODEL}" in str(told.value)
    assert events == ["download_damaged"] * 3
    assert file.content is None and not file.recorded.exists()


def test_the_size_is_asked_for_again(objects: Objects, home: Path) -> None:
    """Of this very object."""
    file = the_file(objects, home)
    assert replace(file, size=7).refreshed() == file
    objects.put(f"m/{MODEL}", DATA)
    with pytest.raises(Resumable, match="another object"):
        file.refreshed()


# What is in the cache


def test_a_cached_file_is_what_its_record_says(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    file, checks = the_file(objects, home), list[None]()
    ensure_cached(file, metadata)
    right = json.loads(file.recorded.read_bytes())
    assert file.is_intact(file.blob, lambda: checks.append(None)) and checks
    for wrong in (
        {"name": "another"},
        {"etag": "another"},
        {"size": len(DATA) + 1},
        {"xxh3": "0" * 32},
        {"size": str(len(DATA))},
        {"size": True},
        {"xxh3": None},
    ):
        file.recorded.write_text(json.dumps(right | wrong))
        assert not file.is_intact(file.blob), wrong
    for text in (
        "",
        "[]",
        "{",
        "7",
        json.dumps({"name": MODEL}),
        "[" * 9999,
        json.dumps(right) + " " * 20_000,
    ):
        file.recorded.write_text(text)
        assert not file.is_intact(file.blob)
    file.recorded.write_text(json.dumps(right))
    for damaged in (DATA[:-1], DATA + b"x", DATA[:-1] + b"?", b""):
        file.blob.write_bytes(damaged)
        assert not file.is_intact(file.blob)
    file.blob.write_bytes(DATA)
    assert file.is_intact(file.blob)
    file.recorded.unlink()
    assert not file.is_intact(file.blob)


def test_each_file_is_found_in_the_latest_listing_that_has_it(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    first = opened(metadata=metadata)
    assert remote_file(first, MODEL).links == {first.folder / MODEL}, "where it will be"
    fetch(first, [MODEL], metadata)
    objects.put("m/config.json", json.dumps(CONFIG).encode() + b" ")
    second = opened(metadata=metadata)
    assert second.folder != first.folder and second.revision == first.revision
    os.utime(first.folder, (1, 1))
    os.utime(second.folder, (2, 2))
    found = {(file.name, file.revision, file.etag) for file in cached_bucket_files(ADDRESS)}
    stale = remote_file(first, "config.json")
    assert found == {
        (MODEL, second.folder.name, remote_file(second, MODEL).etag),
        ("config.json", second.folder.name, remote_file(second, "config.json").etag),
        ("config.json", first.folder.name, stale.etag),
    }
    assert [file.name for file in cached_bucket_files(ADDRESS)] == sorted(n for n, _, _ in found)
    assert {file.folder for file in cached_bucket_files(ADDRESS)} == {model_folder(ADDRESS)}
    for name in (MODEL, "config.json"):
        links = {first.folder / name, second.folder / name}
        is_shared = name == MODEL
        assert remote_file(first, name).links == (links if is_shared else {first.folder / name})
    os.utime(second.folder, (0, 0))
    latest = [f.revision for f in cached_bucket_files(ADDRESS) if f.name == MODEL]
    assert latest == [first.folder.name]


def test_what_is_no_file_of_the_model_is_not_found_in_the_cache(
    objects: Objects, home: Path, metadata: MetadataCache
) -> None:
    """A record of an odd name, one that is damaged, and a content without a link."""
    file = the_file(objects, home)
    ensure_cached(file, metadata)
    right = json.loads(file.recorded.read_bytes())
    (file.blob.parent / "odd.json").write_text(json.dumps(right | {"name": "../out"}))
    (file.blob.parent / "damaged.json").write_text("{")
    assert [found.name for found in cached_bucket_files(ADDRESS)] == [MODEL]
    file.pointer.unlink()
    assert cached_bucket_files(ADDRESS) == []
    file.pointer.write_bytes(DATA)  # a cache without links
    assert [found.name for found in cached_bucket_files(ADDRESS)] == [MODEL]


# A listing


def test_a_listing_has_the_files_below_the_address(objects: Objects, home: Path) -> None:
    for key in ("m2/a", "m/sub/a", "m/../up", "m//x", "top", "m/dir/"):
        objects.put(key, b"x")
    found = listed().files
    assert {*found} == {*FILES, "sub/a"}
    assert {(f.name, f.size, f.etag, f.model, f.folder, f.revision) for f in found.values()} == {
        (
            name,
            len(objects.stored[f"m/{name}"].data),
            objects.stored[f"m/{name}"].etag,
            ADDRESS,
            model_folder(ADDRESS),
            listed().revision,
        )
        for name in found
    }
    assert listed().folder == model_folder(ADDRESS) / "snapshots" / listed().revision
    at_the_top = listed("s3://box").files
    assert {"top", "m2/a", f"m/{MODEL}"} <= {*at_the_top}
    file = at_the_top["top"]
    with file.request(0) as response:
        assert b"".join(response.chunks) == b"x"
    assert (file.where, found["sub/a"].where) == ("s3://box/top", "s3://box/m/sub/a")


def test_of_one_file_nothing_else_is_listed(objects: Objects, home: Path) -> None:
    """Not those whose names begin like it; of one that is missing, what is there is told."""
    objects.put(f"m/{MODEL}.bak", b"x")
    objects.requests.clear()
    assert {*listed(file=MODEL).files} == {MODEL}
    assert [r.query["prefix"] for r in objects.requests] == [f"m/{MODEL}"]
    assert {*listed(file="model").files} == {*FILES, f"{MODEL}.bak"}


@pytest.mark.parametrize("address, below", [("s3://box/q", "q/"), ("s3://box", "an empty bucket")])
def test_nothing_at_an_address_is_told(
    objects: Objects, home: Path, address: str, below: str
) -> None:
    objects.stored.clear()
    with pytest.raises(InputError, match="has nothing at this address") as told:
        listed(address)
    assert below in told.value.problems[0].found and told.value.problems[0].where == address


def test_a_revision_pins_name_etag_and_size_of_the_files_that_are_named(
    objects: Objects, home: Path
) -> None:
    model = listed()
    pinned = model.pin([MODEL, "config.json"])
    assert model.pin(["config.json", MODEL]) == pinned != model.pin([MODEL])
    file = model.files[MODEL]
    others = [replace(file, size=file.size + 1), replace(file, etag="9")]
    pins = {replace(model, files={**model.files, MODEL: other}).pin([MODEL]) for other in others}
    pins |= {model.pin([MODEL]), replace(model, files={"n": file}).pin(["n"])}
    assert len(pins) == 4
    objects.put("m/unrelated", b"")
    assert listed().pin([MODEL]) == model.pin([MODEL])
    assert listed().revision != model.revision


# Without the network


def test_a_model_is_opened_without_the_network_as_it_was_listed(
    objects: Objects, metadata: MetadataCache, home: Path
) -> None:
    source = opened(metadata=metadata)
    assert source.kind == "bucket" and not source.files[MODEL].present
    fetch(source, [MODEL], metadata)
    objects.requests.clear()
    for revision in (None, source.revision):
        found = opened(metadata=metadata, offline=True, revision=revision)
        assert found.identity() == source.identity() and found.folder == source.folder
        assert found.files[MODEL].present
    assert objects.requests == []
    with pytest.raises(InputError, match="the bucket's listing is not cached"):
        opened(metadata=metadata, offline=True, revision="another")
    with pytest.raises(InputError, match="the bucket's listing is not cached"):
        opened(metadata=metadata, offline=True, address=f"{ADDRESS}/{MODEL}")


def test_the_latest_listing_is_the_server_s(
    objects: Objects, metadata: MetadataCache, home: Path
) -> None:
    """And not the one that a run was opened with again."""
    first = opened(metadata=metadata)
    objects.put(f"m/{MODEL}", safetensors({"a": (3,)}, 2))
    second = opened(metadata=metadata)
    assert first.revision != second.revision
    again = opened(metadata=metadata, offline=True, revision=first.revision)
    assert again.revision == first.revision
    assert cached_bucket_model(ADDRESS, None, metadata).pin([MODEL]) == second.revision
    assert opened(metadata=metadata, revision=first.revision).revision == second.revision


def test_a_run_that_began_goes_on_where_the_bucket_cannot_be_listed(
    objects: Objects, metadata: MetadataCache, home: Path
) -> None:
    """For now or for good; one that did not begin is told why."""
    source = opened(metadata=metadata)
    for status, kind in ((503, Resumable), (403, InputError)):
        objects.choose = lambda request, status=status: failure(status)  # type: ignore[misc]
        again = opened(metadata=metadata, revision=source.revision)
        assert again.identity() == source.identity()
        with pytest.raises(kind, match=f"HTTP {status}") as told:
            opened(metadata=metadata)
        assert ADDRESS in str(told.value)
        with pytest.raises(kind, match=f"HTTP {status}"):
            opened(metadata=metadata, revision="another")


def test_offline_each_file_that_is_missing_is_named(
    objects: Objects, metadata: MetadataCache, home: Path
) -> None:
    objects.upload("parts", sharded(1, layers=3))
    source = opened("s3://box/parts", metadata=metadata)
    fetch(source, [shard(2, 3)], metadata)
    objects.requests.clear()
    names = [shard(n, 3) for n in (1, 2, 3)]
    with pytest.raises(InputError) as told:
        fetch(source, names, metadata, offline=True)
    [problem] = told.value.problems
    assert problem.found == f"missing: {names[0]}, {names[2]}"
    assert (problem.where, problem.expected) == ("s3://box/parts", f"in {source.folder}")
    assert objects.requests == []


# An adapter, and single files


def test_a_single_file_has_neither_companions_nor_neighbours(
    objects: Objects, metadata: MetadataCache, home: Path
) -> None:
    objects.put("m/other.safetensors", b"no model")
    source = opened(f"{ADDRESS}/{MODEL}", metadata=metadata)
    assert ([*source.files], [*source.companions], source.single) == ([MODEL], [], True)
    assert opened(f"{ADDRESS}/{MODEL}", metadata=metadata, offline=True) == source
    with pytest.raises(InputError, match="model's file does not exist") as told:
        opened(f"{ADDRESS}/none.safetensors", metadata=metadata)
    assert MODEL in str(told.value)


def test_an_adapter_is_no_model(objects: Objects, metadata: MetadataCache, home: Path) -> None:
    from resumerge.sources.index import ADAPTER

    objects.upload("lora", adapter(1))
    source = opened("s3://box/lora", metadata=metadata, contents=ADAPTER)
    assert [*source.files] == ["adapter_model.safetensors"]
    with pytest.raises(InputError, match="adapter"):
        opened("s3://box/lora", metadata=metadata)


# Names in the cache


@pytest.mark.parametrize(
    "prefix, name",
    [
        ("", "%"),
        ("m", "m"),
        ("a/b c", "a%2Fb%20c"),
        ("%", "%25"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "%" + xxhash.xxh3_64_hexdigest(b"x" * 201)),
    ],
)
def test_each_address_has_a_folder(served: Objects, home: Path, prefix: str, name: str) -> None:
    folder = model_folder(f"s3://box/{prefix}".removesuffix("/"))
    assert folder == home / "resumerge" / "buckets" / _server(served) / "box" / name
