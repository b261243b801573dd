"""Promise: of a model in a bucket the cache has what was listed, compared and recorded; it is found
again without the network, and no other file counts as it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from bucket_merges import CONFIG, adapter, safetensors, shard, sharded
from model_in_a_bucket import ADDRESS, DATA, FILES, MODEL, listed, server_folder, the_file
from served_objects import Objects, failure

from resumerge.buckets.file import model_folder
from resumerge.buckets.model import cached_bucket_files, cached_bucket_model
from resumerge.errors import InputError, Resumable
from resumerge.recipe.references import read_reference
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.bucket import open_bucket_model
from resumerge.sources.remote.files import ensure_cached, fetch, remote_file
from resumerge.sources.types import Source


def opened(address: str = ADDRESS, **given: object) -> Source:
    return open_bucket_model(read_reference(address), **given)  # type: ignore[arg-type]


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
    """Records with odd names, damaged records and contents without links are not found."""
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
    """A neighbour with a longer name is left out; for a missing file, the others are listed."""
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
    """A listing with which a run is opened again does not become the latest one."""
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
    """Temporary and permanent errors of the listing stop only a run that has not begun."""
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
    assert folder == home / "resumerge" / "buckets" / server_folder(served) / "box" / name
