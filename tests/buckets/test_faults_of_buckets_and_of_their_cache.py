"""Promise: damage in the cache is found and mended, requests that go wrong are repeated, denied
ones are explained, and no secret is written anywhere."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from bucket_merges import Place, forget, linear, sent, shard, sharded, upload, whole
from loopback_s3 import Bucket, Proxy, Server
from loopback_s3.servers import KEY_ID, SECRET
from small_disks import mounted

from resumerge.buckets.file import BucketFile
from resumerge.errors import InputError, Resumable
from resumerge.recipe.types import ModelRef
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.download import download
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.bucket import open_bucket_model
from resumerge.sources.remote.files import fetch, remote_file
from resumerge.sources.types import Source

MODEL = "model.safetensors"


def flip(path: Path, at: int = 5000) -> None:
    """Change a byte of a file, but neither its size nor the time that programs can set."""
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def states(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return the state of each file that is not intact."""
    return {f["file"]: f["state"] for f in document["files"] if f["state"] != "intact"}


def test_a_damaged_file_alone_is_fetched_again(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    files = sharded(1, layers=3)
    address, name = upload(bucket, "m", files), shard(2, 3)
    place = Place(s3, tmp_path / "place", linear(address), proxy)
    place.call("run", "merge.yaml", "out")
    before = place.output()
    flip(place.cached(name))
    forget(proxy)
    found = place.document("cache", "check", "merge.yaml", expect=75)
    assert states(found) == {name: "damaged"} and sent(proxy) == {}
    assert states(place.document("cache", "check", address, expect=75)) == {name: "damaged"}
    place.call("resume", "out")
    assert sent(proxy) == {name: len(files[name])}
    assert place.output() == before
    [event] = place.events("source_damaged")
    assert (event["model"], event["file"], event["units"]) == (address, name, 2)

    place.cached(name).unlink()
    forget(proxy)
    repaired = place.document("cache", "repair", address)
    assert states(repaired) == {name: "repaired"}
    assert sent(proxy) == {name: len(files[name])}
    assert "already done" in place.call("resume", "out").stderr


def test_one_that_is_damaged_is_told_where_the_rest_is_streamed(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """Only the damaged file is stored again; the missing one is streamed, and not stored."""
    files, name = sharded(1, layers=3), shard(2, 3)
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    place.call("run", "merge.yaml", "out")
    flip(place.cached(name))
    place.cached(shard(3, 3)).unlink()
    told = place.call("run", "merge.yaml", "again", "--stream").stderr
    assert f"The cached file {name} of s3://{bucket.name}/m is damaged, and is downloaded" in told
    assert "--stream stores no other" in told and told.count("is damaged") == 1
    there = [
        path for path in (place.folder / "hf").rglob("blobs/*") if len(path.read_bytes()) > 9999
    ]
    assert len(there) == 2
    assert place.output("again") == place.output()


def test_a_cache_that_is_read_only_is_named(s3: Server, bucket: Bucket, tmp_path: Path) -> None:
    address = upload(bucket, "m", sharded(1))
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", 1 << 20) as disk:
        place = Place(s3, tmp_path / "place", linear(address), HF_HOME=str(disk / "hf"))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for stream in ([], ["--stream"]):
            told = place.call("run", "merge.yaml", "out", *stream, expect=2).stderr
            assert "The cache folder is not usable" in told and str(disk) in told
            assert "Read-only file system" in told and "set HF_HOME" in told
        assert not (place.folder / "out").exists()


def test_downloads_are_deleted_with_evict(s3: Server, bucket: Bucket, tmp_path: Path) -> None:
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", sharded(1, layers=3))))
    place.call("run", "merge.yaml", "out", "--evict")
    assert list((place.folder / "hf").rglob("*-of-00003.safetensors")) == []
    assert len(place.events("download_evicted")) == 3


def test_what_was_downloaded_before_another_listing_is_deleted_too(
    s3: Server, bucket: Bucket, tmp_path: Path
) -> None:
    address = upload(bucket, "m", sharded(1, layers=3))
    place = Place(s3, tmp_path / "place", linear(address))
    place.call("run", "merge.yaml", "out")
    bucket.put("m/another.txt", b"of no model")
    (place.folder / "out" / "model.safetensors").unlink()
    place.call("resume", "out", "--evict")
    assert list((place.folder / "hf").rglob("*-of-00003.safetensors")) == []
    assert {path.suffix for path in (place.folder / "hf").rglob("blobs/*")} == {"", ".json"}


# Secrets


def test_no_secret_is_written_anywhere(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """A run writes no secret, whether it succeeds or fails, however much is logged."""
    address = upload(bucket, "m", sharded(1))
    log = tmp_path / "log.txt"
    settings = {"RESUMERGE_LOG": f"debug:{log}", "AWS_SESSION_TOKEN": "Token0nly4Tests"}
    place = Place(s3, tmp_path / "place", linear(address), proxy, **settings)
    told = [place.call("run", "merge.yaml", "out", "-vv")]
    proxy.choose = lambda method, path: "403" if method == "GET" else None
    told.append(place.call("run", "merge.yaml", "denied", "-vv", expect=2))
    elsewhere = f"s3://{KEY_ID}:{SECRET}@{bucket.name}/m"
    (place.folder / "wrong.yaml").write_text(linear(elsewhere))
    told.append(place.call("plan", "wrong.yaml", expect=2))
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
               if path.name != "wrong.yaml"]  # fmt: skip
    texts = [log.read_bytes(), *written, *(f"{c.stdout}{c.stderr}".encode() for c in told)]
    assert len(texts) > 20 and any(address.encode() in text for text in texts)
    for secret in (SECRET, "Token0nly4Tests", "Signature", "Authorization", s3.endpoint[7:]):
        assert [text for text in texts if secret.encode() in text] == [], secret


# In this process


@pytest.fixture
def cache(s3: Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lead this process to the proxy, and return the folder of its caches."""
    for name, value in s3.env(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


@pytest.fixture
def here(cache: Path, sleeps: list[float]) -> Path:
    """Return the folder of the caches; retries do not wait."""
    return cache


def opened(address: str) -> Source:
    return open_bucket_model(ModelRef(address, address))


@pytest.mark.parametrize("kind", ["503", "429", "cut", "cut answer"])
def test_a_request_that_fails_for_a_while_is_repeated(
    kind: str, bucket: Bucket, proxy: Proxy, here: Path
) -> None:
    files = whole(1, numel=100_000)
    address = upload(bucket, "m", files)
    left = [kind] * 5  # boto3 repeats it twice, the program more often

    def choose(method: str, path: str) -> str | None:
        return left.pop() if left else None

    proxy.choose = choose
    source = opened(address)
    assert left == []
    left[:] = [kind] * 5
    fetch(source, [MODEL])
    assert source.path(MODEL).read_bytes() == files[MODEL]
    assert left == []


def test_a_download_goes_on_after_the_bytes_that_arrived(
    bucket: Bucket, proxy: Proxy, here: Path
) -> None:
    files = whole(1, numel=500_000)
    source = opened(upload(bucket, "m", files))
    size = len(files[MODEL])
    forget(proxy)
    proxy.once("cut answer", "GET", MODEL)
    fetch(source, [MODEL])
    assert source.path(MODEL).read_bytes() == files[MODEL]
    assert size <= sent(proxy)[MODEL] < size + 200_000


def test_a_server_that_is_away_is_given_up_for_now(
    bucket: Bucket, proxy: Proxy, here: Path
) -> None:
    """The source of a run that has begun is opened again from its recorded listing."""
    address, metadata = upload(bucket, "m", whole(1)), MetadataCache()
    ref = ModelRef(address, address)
    source = open_bucket_model(ref, metadata=metadata)
    proxy.choose = lambda method, path: "503"
    with pytest.raises(Resumable, match="HTTP 503") as stopped:
        fetch(source, [MODEL])
    assert stopped.value.reason == "network" and f"{address}/{MODEL}" in str(stopped.value)
    with pytest.raises(Resumable, match="HTTP 503"):
        open_bucket_model(ref, metadata=metadata)
    again = open_bucket_model(ref, revision=source.revision, metadata=metadata)
    assert again.identity() == source.identity()


def test_content_that_is_always_another_is_never_used(
    bucket: Bucket, proxy: Proxy, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transfer changes a byte."""
    source = opened(upload(bucket, "m", whole(1)))
    file = remote_file(source, MODEL)
    send = proxy.send

    def spoil(write: object, path: str, data: bytes) -> None:
        send(write, path, data[:-1] + bytes([data[-1] ^ 1]))  # type: ignore[arg-type]

    monkeypatch.setattr(proxy, "send", spoil)
    events: list[str] = []
    callbacks = DownloadCallbacks(on_event=lambda kind, **facts: events.append(kind))
    with pytest.raises(Resumable, match="was downloaded 3 times") as stopped:
        download(file, MetadataCache(), callbacks)
    assert stopped.value.reason == "source_unavailable"
    assert events == ["download_damaged"] * 3
    assert file.content is None and file.partial.stat().st_size == 0
    monkeypatch.undo()


def test_a_cached_file_without_its_record_counts_as_damaged(bucket: Bucket, here: Path) -> None:
    source = opened(upload(bucket, "m", whole(1)))
    fetch(source, [MODEL])
    file = remote_file(source, MODEL)
    assert isinstance(file, BucketFile) and file.is_intact(file.blob)
    another = file.recorded.read_bytes().replace(b'"xxh3": "', b'"xxh3": "0')
    for damaged in (b"", b"[]", b"{", another):
        file.recorded.write_bytes(damaged)
        assert not file.is_intact(file.blob)
    file.recorded.unlink()
    assert not file.is_intact(file.blob)
    fetch(source, [MODEL], MetadataCache())
    assert file.is_intact(file.blob)


def test_a_response_can_be_ended_by_another_thread(
    bucket: Bucket, proxy: Proxy, cache: Path
) -> None:
    file = remote_file(opened(upload(bucket, "m", whole(1, numel=500_000))), MODEL)
    proxy.allowance.give(100_000)
    with pytest.raises(OSError), file.request(0) as response:
        next(response.chunks)
        threading.Thread(target=response.abort).start()
        for _ in response.chunks:
            pass


# What is told


def refused(address: str) -> str:
    with pytest.raises(InputError) as caught:
        opened(address)
    return str(caught.value)


def test_what_is_not_there_is_told(bucket: Bucket, here: Path) -> None:
    upload(bucket, "m", whole(1))
    bucket.put("empty/README.md", b"nothing")
    at = f"s3://{bucket.name}"
    assert "nothing at this address" in refused(f"{at}/mm")
    assert "The weights of a model are missing" in refused(f"{at}/empty")
    with pytest.raises(InputError, match="model's file does not exist") as caught:
        open_bucket_model(ModelRef(f"{at}/m/b.safetensors", f"{at}/m", file="b.safetensors"))
    assert MODEL in str(caught.value), "what is there instead"
    assert "NoSuchBucket" in refused("s3://no-such-bucket-there/m")


def test_denied_access_says_where_credentials_come_from(
    bucket: Bucket, proxy: Proxy, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = upload(bucket, "m", whole(1))
    proxy.choose = lambda method, path: "403"
    told = refused(address)
    assert "The bucket cannot be read" in told and "AWS_PROFILE" in told and "HTTP 403" in told
    proxy.choose = lambda method, path: None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "no usable credentials" in refused(address)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "AWS_PROFILE" in refused(address)


def test_without_boto3_it_is_said_how_to_install_it(
    bucket: Bucket, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'resumerge[cloud]'" in refused(f"s3://{bucket.name}/m")


def test_two_files_of_one_etag_have_contents_of_their_own(tmp_path: Path) -> None:
    """ETags of some servers are no hashes: they say when an object was written, or how often."""
    files = [
        BucketFile(model, "r", name, size, etag, tmp_path / model[-1])
        for model in ("s3://box/m", "s3://box/n")
        for name in ("a", "b")
        for size in (1, 2)
        for etag in ("x", "y")
    ]
    for paths in ({file.blob for file in files}, {file.lock for file in files}):
        assert len(paths) == len(files)
    assert len({file.identity for file in files}) == len(files)


def test_two_servers_have_caches_of_their_own(
    s3: Server, bucket: Bucket, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers may have buckets of the same name; the client follows the environment."""
    address = upload(bucket, "m", whole(1))
    first = opened(address)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    second = opened(address)
    assert first.revision == second.revision
    assert first.folder != second.folder
    assert first.folder.is_relative_to(here / "resumerge" / "buckets")


def test_objects_with_odd_names_are_no_files_of_the_model(bucket: Bucket, here: Path) -> None:
    address = upload(bucket, "m", whole(1) | {"../out.txt": b"x", "a//b": b"y", "folder/": b""})
    source = opened(address)
    assert list(source.files) == [MODEL]
    assert not (source.folder.parent / "out.txt").exists()
