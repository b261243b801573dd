"""Promise: a model in Google Cloud Storage or in Azure is a source like one in a bucket of S3."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from bucket_merges import (
    SMALL_BATCHES,
    Place,
    adapter,
    interrupt_while_held,
    linear,
    shard,
    sharded,
    upload,
    whole,
    write,
)
from loopback_clouds import Cloud, Container, fixtures
from loopback_clouds.clouds import SECRET
from loopback_s3 import Proxy, before
from waiting import wait_until

from resumerge.buckets.calls import open_bucket
from resumerge.buckets.content_hash import HashCheck
from resumerge.buckets.errors import Changed
from resumerge.errors import StoreError

cloud, bucket = fixtures.cloud, fixtures.bucket

PATIENT = """
from resumerge.buckets import azure, google
azure.IDLE_TIMEOUT = google.IDLE_TIMEOUT = 3600.0
"""
"""The client would wait for an hour before it repeats a request."""


@pytest.fixture
def proxy(cloud: Cloud) -> Iterator[Proxy]:
    with before(cloud.endpoint) as proxy:
        yield proxy


def placed(
    cloud: Cloud, folder: Path, recipe: str, proxy: Proxy | None = None, **env: str
) -> Place:
    return Place(cast(Any, cloud), folder, recipe, proxy, **env)


def put(bucket: Container, prefix: str, files: dict[str, bytes]) -> str:
    """Upload a model, and return its address."""
    upload(cast(Any, bucket), prefix, files)
    return f"{bucket.url}/{prefix}"


def of_weights(proxy: Proxy) -> int:
    """Return the number of bytes of weight files that were sent, without Google's metadata."""
    return sum(
        count
        for path, count in proxy.sent.items()
        if path.endswith(".safetensors") and not path.startswith("/storage/v1/")
    )


def test_the_same_bytes_as_from_folders(
    cloud: Cloud, bucket: Container, proxy: Proxy, tmp_path: Path
) -> None:
    """The sources are shards with an adapter, and a single file; requests fail, or none is sent."""
    models = {"base": sharded(1), "a": sharded(2), "lora": adapter(3), "b": whole(4)}
    for name, files in models.items():
        write(tmp_path / "models" / name, files)
        put(bucket, f"deep/{name}", files)
    at, here = f"{bucket.url}/deep", tmp_path / "models"
    words = "{at}/base", "{at}/a+{at}/lora", "{at}/b/model.safetensors"
    calm = placed(cloud, tmp_path / "calm", linear(*(word.format(at=here) for word in words)))
    calm.call("run", "merge.yaml", "out")
    place = placed(cloud, tmp_path / "place", linear(*(w.format(at=at) for w in words)), proxy)
    plan = place.document("plan", "merge.yaml")
    assert [source["kind"] for source in plan["sources"]] == ["bucket", "lora", "bucket"]
    proxy.shake(seed=1, share=0.1)
    place.call("run", "merge.yaml", "out")
    place.call("verify", "out")
    assert place.output() == calm.output()
    assert len(place.output()) > 3
    proxy.choose = lambda method, path: None
    proxy.requests.clear()
    place.call("run", "merge.yaml", "again", "--offline")
    assert place.output("again") == calm.output() and proxy.requests == []
    found = place.call("cache", "check", f"{at}/a").stdout
    assert found.count("intact") >= 2


def test_streamed(cloud: Cloud, bucket: Container, proxy: Proxy, tmp_path: Path) -> None:
    """The bytes that are fetched are those that `plan` states, and no weights are stored."""
    models = {"a": sharded(1, numel=90_000), "b": whole(3, 2, 90_000)}
    for name, files in models.items():
        write(tmp_path / "models" / name, files)
        put(bucket, name, files)
    calm = placed(cloud, tmp_path / "calm", linear(*(tmp_path / "models" / n for n in models)))
    calm.call("run", "merge.yaml", "out")
    recipe = linear(*(f"{bucket.url}/{name}" for name in models))
    place = placed(cloud, tmp_path / "place", recipe, proxy)
    plan = place.document("plan", "merge.yaml", "--stream")
    proxy.sent.clear()
    place.call("run", "merge.yaml", "out", "--stream")
    assert of_weights(proxy) == plan["download"]["streamed_bytes"] == plan["download"]["bytes"]
    assert place.output() == calm.output()
    blobs = (place.folder / "hf").rglob("blobs/*")
    assert [path for path in blobs if path.stat().st_size > 10_000] == []


@pytest.mark.parametrize("part", ["", "config.json", "model.safetensors"])
def test_a_signal_does_not_wait_for_what_a_plan_needs(
    part: str, cloud: Cloud, bucket: Container, proxy: Proxy, tmp_path: Path
) -> None:
    """A plan needs the listing, the config and the headers."""
    place = placed(cloud, tmp_path, linear(put(bucket, "m", whole(1))), proxy)
    interrupt_while_held(place, proxy, part, before=PATIENT)


@pytest.mark.parametrize("stream", [False, True])
def test_killed_and_resumed(
    cloud: Cloud, bucket: Container, proxy: Proxy, tmp_path: Path, stream: bool
) -> None:
    files = sharded(1, layers=6, numel=250_000)
    address = put(bucket, "m", files)
    place = placed(cloud, tmp_path / "place", linear(address), proxy)
    place.document("plan", "merge.yaml")
    proxy.hold("GET", shard(6, 6))
    process = place.start(
        "run", "merge.yaml", "out", *["--stream"][: int(stream)], before=SMALL_BATCHES
    )
    wait_until(lambda: place.committed() >= 4, process)
    process.kill()
    process.communicate()
    proxy.choose = lambda method, path: None
    place.call("resume", "out")
    calm = placed(cloud, tmp_path / "calm", linear(write(tmp_path / "m", files)))
    calm.call("run", "merge.yaml", "out")
    assert place.output() == calm.output()


def test_an_object_that_changes_is_told(
    cloud: Cloud, bucket: Container, proxy: Proxy, tmp_path: Path
) -> None:
    """An object that is uploaded again is another object, even if its bytes are the same."""
    files = sharded(1, layers=4, numel=50_000)
    address = put(bucket, "m", files)
    place = placed(cloud, tmp_path / "place", linear(address), proxy)
    place.document("plan", "merge.yaml")
    proxy.hold("GET", shard(4, 4))
    process = place.start("run", "merge.yaml", "out", "--stream", before=SMALL_BATCHES)
    wait_until(place.committed, process)
    process.kill()
    process.communicate()
    proxy.choose = lambda method, path: None
    bucket.put(f"m/{shard(4, 4)}", files[shard(4, 4)])
    told = place.call("resume", "out", expect=2).stderr
    assert shard(4, 4) in told


def test_an_object_is_read_in_the_version_that_was_listed(bucket: Container) -> None:
    bucket.put("k", b"0123456789")
    objects = open_bucket(bucket.url)
    known = objects.list("")["k"]
    assert known.nbytes == 10
    with objects.read("k", 2, 5, known=known) as body:
        assert (b"".join(body.pieces), body.status, body.nbytes) == (b"234", 206, 10)
        assert body.headers["Content-Range"] == "bytes 2-4/10"
    check = objects.check("k", known)
    assert check is not None
    for data, fits in ((b"0123456789", True), (b"012345678X", False)):
        begun = check()
        begun.update(data)
        assert begun.fits is fits
    bucket.put("k", b"9876543210")
    with pytest.raises(Changed), objects.read("k", 2, 5, known=known) as body:
        b"".join(body.pieces)
    with pytest.raises(Changed):
        objects.check("k", known)
    with objects.read("k") as body:
        assert b"".join(body.pieces) == b"9876543210"
    with pytest.raises(FileNotFoundError), objects.read("missing"):
        pass


@pytest.mark.parametrize("is_known", [False, True])
def test_an_object_that_is_replaced_or_removed_while_it_is_read(
    bucket: Container, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr("resumerge.buckets.ranges.RANGE", 100)
    objects = open_bucket(bucket.url)
    outcomes: list[tuple[Callable[[], None], type[Exception]]] = [
        (lambda: bucket.put("k", bytes(2000)), Changed if is_known else StoreError),
        (lambda: bucket.remove("k"), FileNotFoundError),
    ]
    for change, expected in outcomes:
        bucket.put("k", bytes(1000))
        known = objects.list("")["k"] if is_known else None
        with objects.read("k", known=known) as body:
            next(body.pieces)
            change()
            with pytest.raises((expected, Changed) if is_known else expected):
                next(body.pieces)


def test_a_response_can_be_ended_by_another_thread(
    bucket: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.buckets.ranges.RANGE", 100)
    bucket.put("k", bytes(1000))
    objects = open_bucket(bucket.url)
    with objects.read("k", known=objects.list("")["k"]) as body:
        assert len(next(body.pieces)) == 100
        body.abort()
        with pytest.raises(OSError, match="was ended"):
            next(body.pieces)


def test_objects_that_have_no_md5(cloud: Cloud, bucket: Container) -> None:
    """Composed objects of Google have a CRC-32C; blobs of blocks in Azure may have no hash."""
    objects = open_bucket(bucket.url)
    if cloud.scheme == "az":
        from azure.storage.blob import BlobBlock

        blob = cast(Any, bucket).api.get_blob_client("k")
        blob.stage_block("AAAA", b"12")
        blob.stage_block("BBBB", b"34")
        blob.commit_block_list([BlobBlock("AAAA"), BlobBlock("BBBB")])
        assert objects.check("k", objects.list("")["k"]) is None
        return
    from resumerge.buckets.google import hash_of

    class Composed:
        md5_hash, crc32c = None, "4waSgw=="  # of 123456789, as the standard has it

    expected = hash_of(Composed())
    assert expected is not None
    digest = expected[0]()
    digest.update(memoryview(b"123456789"))
    assert digest.hexdigest() == expected[1].hex() == "e3069283"


def test_marks_of_folders_are_no_objects(cloud: Cloud, bucket: Container) -> None:
    bucket.put("m/", b"")
    bucket.put("m/a", b"1")
    if cloud.scheme == "az":  # an account with folders lists them so
        blob = cast(Any, bucket).api.get_blob_client("m/folder")
        blob.upload_blob(io.BytesIO(b""), metadata={"hdi_isfolder": "true"})
    found = open_bucket(bucket.url).list("m/")
    assert {name: each.nbytes for name, each in found.items()} == {"a": 1}


def test_content_that_has_another_hash_is_never_used(
    cloud: Cloud, bucket: Container, tmp_path: Path
) -> None:
    """The uploader of blocks states the MD5 in Azure; Google computes it."""
    address = put(bucket, "m", whole(1))
    if cloud.scheme == "az":
        from azure.storage.blob import ContentSettings

        blob = cast(Any, bucket).api.get_blob_client("m/model.safetensors")
        blob.set_http_headers(ContentSettings(content_md5=bytearray(16)))
        place = placed(cloud, tmp_path / "place", linear(address))
        told = place.call("run", "merge.yaml", "out", expect=75).stderr
        assert "its content never had the hash" in told
        return
    check = open_bucket(bucket.url).check(
        "m/config.json", open_bucket(bucket.url).list("m/")["config.json"]
    )
    assert check is not None
    assert cast(HashCheck, check())._expected == hashlib.md5(whole(1)["config.json"]).hexdigest()


def test_no_secret_is_written_anywhere(
    cloud: Cloud, bucket: Container, proxy: Proxy, tmp_path: Path
) -> None:
    address = put(bucket, "m", whole(1))
    log = tmp_path / "log"
    place = placed(cloud, tmp_path / "place", linear(address), proxy, RESUMERGE_LOG=f"debug:{log}")
    said = place.call("run", "merge.yaml", "out", "-vv").stderr
    proxy.choose = lambda method, path: "403"
    said += place.call("run", "merge.yaml", "denied", "-vv", expect=2).stderr
    assert "denies access" in said or "cannot be read" in said
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert SECRET[:20].encode() not in path.read_bytes(), path
    assert SECRET[:20] not in said and log.stat().st_size
