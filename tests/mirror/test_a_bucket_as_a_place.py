"""Promise: what a bucket is asked for happens once and whole, or is said not to have happened."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_clouds import Container
from loopback_s3 import Bucket, Proxy, Server, before
from machines import ROOT, kill
from store_conformance import at_once

from resumerge.errors import InputError
from resumerge.mirror.lease import Lease
from resumerge.mirror.stores.base import Store, StoreError
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.s3 import S3Client, S3Store
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.mirror.stores.registry import open_store

PART = 5 << 20
"""The least that the protocol allows."""

NAME = "model-00001-of-00002.safetensors"
UPLOAD = f"""
import sys, time
from pathlib import Path
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.registry import open_store
s3_uploads.PART = {PART}
open_store(sys.argv[1]).upload({NAME!r}, Path(sys.argv[2]), lambda nbytes: time.sleep(0.02))
"""


def ignore(nbytes: int) -> None:
    """Moved, and nobody cares."""


@pytest.fixture
def proxy(s3: Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Before the server, and this process's environment leads to it."""
    with before(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.fixture
def url(bucket: Bucket) -> str:
    return f"s3://{bucket.name}/p"


@pytest.fixture
def place(url: str, proxy: Proxy) -> Store:
    return open_store(url)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three parts."""
    monkeypatch.setattr(s3_uploads, "PART", PART)
    path = tmp_path / "large"
    path.write_bytes(random.Random(1).randbytes(2 * PART + 1000))
    return path


def parts_sent(proxy: Proxy) -> list[str]:
    """The numbers of the parts, in order."""
    found = [path for method, path in proxy.requests if method == "PUT" and "partNumber=" in path]
    return [path.partition("partNumber=")[2].partition("&")[0] for path in found]


def upload_two_parts(place: Store, proxy: Proxy, large: Path) -> None:
    """Upload a large file, of which the server does not take the third part."""
    proxy.choose = lambda method, path: "503" if "partNumber=3" in path else None
    with pytest.raises(StoreError, match="HTTP 503"):
        place.upload(NAME, large, ignore)
    proxy.choose = lambda method, path: None
    proxy.requests.clear()


# Uploads


def test_a_process_that_is_killed_leaves_parts_that_the_next_one_does_not_send_again(
    url: str, place: Store, proxy: Proxy, bucket: Bucket, large: Path
) -> None:
    command = [sys.executable, "-c", UPLOAD, url, str(large)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    while parts_sent(proxy)[-1:] != ["2"]:
        assert process.poll() is None
        time.sleep(0.01)
    kill(process)
    assert bucket.begun_uploads() == [f"p/{NAME}"]
    assert NAME not in place.list()
    time.sleep(0.2)  # the server may still be busy with what came before the kill
    proxy.requests.clear()
    assert place.upload(NAME, large, ignore) == hashlib.sha256(large.read_bytes()).hexdigest()
    assert parts_sent(proxy)[-1] == "3"
    assert "1" not in parts_sent(proxy)
    assert bucket.contents("p/")[NAME] == large.read_bytes()
    assert bucket.begun_uploads() == []


def test_parts_of_another_file_are_replaced(
    place: Store, proxy: Proxy, bucket: Bucket, large: Path
) -> None:
    upload_two_parts(place, proxy, large)
    data = bytearray(large.read_bytes())
    data[0] ^= 1
    large.write_bytes(data)
    place.upload(NAME, large, ignore)
    assert parts_sent(proxy) == ["1", "3"]
    assert bucket.contents("p/")[NAME] == data
    proxy.requests.clear()
    place.upload(NAME, large, ignore)
    assert parts_sent(proxy) == [], "it is there already"


def test_whoever_may_stop_an_upload_is_asked_at_each_part_that_is_there(
    place: Store, proxy: Proxy, large: Path
) -> None:
    """They are read and hashed, which takes its time, and none of their bytes moves."""
    upload_two_parts(place, proxy, large)
    asked: list[list[str]] = []
    place.upload(NAME, large, lambda nbytes: asked.append(parts_sent(proxy)))
    assert asked.count([]) >= 3 and parts_sent(proxy) == ["3"]


@pytest.mark.parametrize("kind", ["503", "cut", "cut answer", "lost"])
@pytest.mark.parametrize(
    ("nbytes", "part"), [(100, NAME), (None, "partNumber=2")], ids=["in one request", "in parts"]
)
def test_a_request_that_the_library_repeats_has_its_body(
    place: Store, proxy: Proxy, bucket: Bucket, large: Path, kind: str, part: str,
    nbytes: int | None,
) -> None:  # fmt: skip
    large.write_bytes(large.read_bytes()[:nbytes])
    proxy.once(kind, "PUT", part)
    place.upload(NAME, large, ignore)
    assert sum(proxy.wrong.values()) == 1
    assert bucket.contents("p/") == {NAME: large.read_bytes()}


@pytest.mark.parametrize("nbytes", [100, None], ids=["in one request", "in parts"])
def test_what_was_created_is_not_replaced(
    url: str, proxy: Proxy, bucket: Bucket | Container, large: Path, nbytes: int | None
) -> None:
    store = open_store(url)
    assert isinstance(store, BucketStore)
    data = large.read_bytes()[:nbytes]
    sha256 = hashlib.sha256(data).hexdigest()
    large.write_bytes(data)
    bucket.put(f"p/{NAME}", other := b"1" + data[1:])
    created = store.create(NAME, large, ignore)
    if store.scheme == "gs" and nbytes is None:  # the emulator ignores it in uploads of parts
        assert any("uploadType=resumable" in path and "ifGenerationMatch=0" in path
                   for _, path in proxy.requests)  # fmt: skip
    else:
        assert created is None
        assert bucket.contents("p/") == {NAME: other}
    if store.scheme != "az":  # where parts expire
        assert bucket.begun_uploads() == []
    store.put({}, [NAME])
    assert store.create(NAME, large, ignore) == sha256
    assert store.create(NAME, large, ignore) == sha256, "as if the answer had been lost"
    assert bucket.contents("p/") == {NAME: data}


@pytest.mark.parametrize("kind", ["503", "cut", "cut answer", "lost"])
@pytest.mark.parametrize("method, part", [("POST", "uploads"), ("PUT", "partNumber=2"),
                                          ("POST", "uploadId=")])  # fmt: skip
def test_one_request_of_an_upload_goes_wrong(
    place: Store, proxy: Proxy, bucket: Bucket, large: Path, kind: str, method: str, part: str
) -> None:
    proxy.once(kind, method, part)
    for _ in range(3):
        try:
            place.upload(NAME, large, ignore)
            break
        except StoreError as error:
            assert not error.denied
    assert sum(proxy.wrong.values()) == 1
    place.abandon_uploads([NAME])
    assert bucket.contents("p/") == {NAME: large.read_bytes()}
    assert bucket.begun_uploads() == []


@pytest.mark.parametrize("nbytes", [1000, 2 * PART + 1000])
def test_what_a_callback_asks_for_is_not_reported_to_it(
    place: Store, bucket: Bucket, large: Path, nbytes: int
) -> None:
    """A lease that is renewed while a shard is sent would wait for itself for ever."""
    large.write_bytes(large.read_bytes()[:nbytes])
    within: list[int] = []

    def moved(nbytes: int) -> None:
        assert not within, "called by the request that it makes"
        within.append(nbytes)
        place.put({"lease": b"renewed"})
        within.pop()

    place.upload(NAME, large, moved)
    assert bucket.contents("p/") == {NAME: large.read_bytes(), "lease": b"renewed"}


def test_only_uploads_of_the_files_that_are_named_are_aborted(place: Store, bucket: Bucket) -> None:
    for key in (f"p/{NAME}", "p/other", "elsewhere"):
        bucket.api.create_multipart_upload(Bucket=bucket.name, Key=key)
    place.abandon_uploads([NAME])
    assert bucket.begun_uploads() == ["elsewhere", "p/other"]


def test_a_copy_that_differs_is_no_copy(
    place: Store, proxy: Proxy, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose ETag is no MD5 sum is asked for all bytes."""
    path = tmp_path / "small"
    path.write_bytes(b"what was meant")
    monkeypatch.setattr(s3_uploads.Upload, "_expected_etag", lambda self: "another")
    assert place.upload(NAME, path, ignore) == hashlib.sha256(b"what was meant").hexdigest()
    send = s3_uploads.Upload._send_whole

    def spoil(upload: s3_uploads.Upload) -> str:
        etag = send(upload)
        bucket.put(f"p/{NAME}", b"something else")
        return etag

    monkeypatch.setattr(s3_uploads.Upload, "_send_whole", spoil)
    with pytest.raises(StoreError, match="differs from what was sent"):
        place.upload(NAME, path, ignore)
    assert NAME not in place.list()


# Errors


@pytest.mark.parametrize("kind", ["503", "cut", "lost", "cut answer"])
def test_an_exclusive_write_whose_answer_is_lost(place: Store, proxy: Proxy, kind: str) -> None:
    assert not place.lease_obstacle()
    proxy.once(kind, "PUT", "lease")
    assert place.put_if_absent("lease", b"mine")
    proxy.once(kind, "PUT", "lease")
    assert place.put_if_unchanged("lease", b"mine 2", b"mine")
    assert sum(proxy.wrong.values()) == 2
    assert place.get("lease") == b"mine 2"
    assert not open_store(place.url).put_if_absent("lease", b"other")


@pytest.mark.parametrize("kind", ["503", "429", "cut"])
def test_what_fails_for_long_fails_for_now(place: Store, proxy: Proxy, kind: str) -> None:
    proxy.choose = lambda method, path: kind
    with pytest.raises(StoreError) as error:
        place.list()
    assert not error.value.denied


def test_a_bucket_that_is_not_there_fails_for_good(place: Store, bucket: Bucket) -> None:
    missing = open_store("s3://no-such-bucket/p")
    for do in (missing.list, lambda: missing.put({"a": b"1"}), lambda: missing.get("a")):
        with pytest.raises(StoreError, match=r"NoSuchBucket|AccessDenied") as error:
            do()
        assert error.value.denied


def test_a_neighbour_and_marks_of_folders_are_no_files_of_the_mirror(
    place: Store, bucket: Bucket
) -> None:
    for key in ("p/", "p/folder/", "p2/a", "pa"):
        bucket.put(key, b"")
    assert place.list() == {}
    place.put({"folder/a": b"1"})
    assert place.list() == {"folder/a": 1}


def test_a_process_that_was_forked_has_a_client_of_its_own(url: str, proxy: Proxy) -> None:
    store = S3Store.open(url)
    store.put({"a": b"1"})
    client = store._client
    assert isinstance(client, S3Client)
    before = client._objects.api()
    assert client._objects.api() is before
    child = os.fork()
    if not child:
        try:
            os._exit(0 if store.get("a") == b"1" and client._objects.api() is not before else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("a") == b"1"


def test_without_boto3_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'resumerge\[cloud\]'"):
        open_store("s3://bucket/p")


# The lease


def test_no_update_is_lost_between_claimants(url: str, bucket: Bucket, soak: bool) -> None:
    """Each adds one to a number, again and again, and claims names that the other wants as well."""
    turns, stores = 1000 if soak else 17, [open_store(url) for _ in range(2)]
    stores[0].put({"number": b"0"})
    added, won = [0, 0], [0, 0]

    def work(machine: int) -> None:
        store = stores[machine]
        for turn in range(turns):
            won[machine] += store.put_if_absent(f"lease-{turn}", b"%d" % machine)
            while True:
                before = store.get("number")
                # Numbers that differ by machine: equal contents would be taken for one's own.
                after = b"%d by %d" % (int(before.split()[0]) + 1, machine)
                if store.put_if_unchanged("number", after, before):
                    added[machine] += 1
                    break

    at_once(2, work)
    assert sum(won) == turns
    assert int(stores[0].get("number").split()[0]) == sum(added) == 2 * turns


@pytest.mark.parametrize("ignored", ["if-none-match", "if-match"])
def test_a_server_that_ignores_conditions_cannot_hold_a_lease(
    url: str, proxy: Proxy, bucket: Bucket, ignored: str
) -> None:
    proxy.drops = {ignored}
    with pytest.raises(InputError, match="--take-over") as refused:
        Lease.acquire(open_store(url), "run")
    assert "ignores" in str(refused.value)
    assert bucket.contents() == {}
    notes: list[str] = []
    lease = Lease.acquire(open_store(url), "run", take_over=True, note=notes.append)
    assert "cannot hold a lease" in notes[0]
    assert list(bucket.contents("p/")) == [".resumerge/lease-000001.json"]
    lease.release()
    assert b'"released": true' in bucket.contents("p/")[".resumerge/lease-000001.json"]
