"""What holds for a bucket of any server: the test file of each server takes these tests."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_clouds import Container
from loopback_s3 import Bucket, Proxy, Server, before
from machines import ROOT, kill
from store_conformance import at_once
from waiting import wait_until

from resumerge.mirror.stores.base import Store, StoreError
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.mirror.stores.registry import open_store

PART = 5 << 20
"""The smallest part in bytes that the protocol allows."""


NAME = "model-00001-of-00002.safetensors"


UPLOAD = f"""
import sys
from pathlib import Path
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.registry import open_store
s3_uploads.PART = {PART}
open_store(sys.argv[1]).upload({NAME!r}, Path(sys.argv[2]), lambda nbytes: None)
"""


def ignore(nbytes: int) -> None:
    """Ignore the number of bytes that were moved."""


@pytest.fixture
def proxy(s3: Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy before the server, to which this process's environment leads."""
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
    """Make a file of three parts."""
    monkeypatch.setattr(s3_uploads, "PART", PART)
    path = tmp_path / "large"
    path.write_bytes(random.Random(1).randbytes(2 * PART + 1000))
    return path


def parts_sent(proxy: Proxy) -> list[str]:
    """Return the numbers of the parts that were sent, in order."""
    found = [path for method, path in proxy.requests if method == "PUT" and "partNumber=" in path]
    return [path.partition("partNumber=")[2].partition("&")[0] for path in found]


def upload_two_parts(place: Store, proxy: Proxy, large: Path) -> None:
    """Upload a large file to a server that refuses its third part."""
    proxy.choose = lambda method, path: "503" if "partNumber=3" in path else None
    with pytest.raises(StoreError, match="HTTP 503"):
        place.upload(NAME, large, ignore)
    proxy.choose = lambda method, path: None
    proxy.requests.clear()


def test_a_process_that_is_killed_leaves_parts_that_the_next_one_does_not_send_again(
    url: str, place: Store, proxy: Proxy, bucket: Bucket, large: Path
) -> None:
    idle = proxy.connections
    proxy.hold("PUT", "partNumber=3")
    command = [sys.executable, "-c", UPLOAD, url, str(large)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    wait_until(lambda: "3" in parts_sent(proxy), process)
    kill(process)
    wait_until(lambda: proxy.connections <= idle)  # the server has done what came before the kill
    proxy.choose = lambda method, path: None
    assert bucket.unfinished_uploads() == [f"p/{NAME}"]
    assert NAME not in place.list()
    proxy.requests.clear()
    assert place.upload(NAME, large, ignore) == hashlib.sha256(large.read_bytes()).hexdigest()
    assert parts_sent(proxy) == ["3"]
    assert bucket.contents("p/")[NAME] == large.read_bytes()
    assert bucket.unfinished_uploads() == []


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
        assert bucket.unfinished_uploads() == []
    store.put({}, [NAME])
    assert store.create(NAME, large, ignore) == sha256
    assert store.create(NAME, large, ignore) == sha256, "as if the answer had been lost"
    assert bucket.contents("p/") == {NAME: data}


def test_only_uploads_of_the_files_that_are_named_are_aborted(place: Store, bucket: Bucket) -> None:
    for key in (f"p/{NAME}", "p/other", "elsewhere"):
        bucket.api.create_multipart_upload(Bucket=bucket.name, Key=key)
    place.abandon_uploads([NAME])
    assert bucket.unfinished_uploads() == ["elsewhere", "p/other"]


def test_an_upload_is_not_mixed_up_with_that_of_a_longer_name(
    place: Store, bucket: Bucket, large: Path
) -> None:
    bucket.api.create_multipart_upload(Bucket=bucket.name, Key=f"p/{NAME}.kept")
    place.upload(NAME, large, ignore)
    assert bucket.contents("p/")[NAME] == large.read_bytes()
    assert bucket.unfinished_uploads() == [f"p/{NAME}.kept"]


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


def test_a_neighbour_and_marks_of_folders_are_no_files_of_the_mirror(
    place: Store, bucket: Bucket
) -> None:
    for key in ("p/", "p/folder/", "p2/a", "pa"):
        bucket.put(key, b"")
    assert place.list() == {}
    place.put({"folder/a": b"1"})
    assert place.list() == {"folder/a": 1}


def test_no_update_is_lost_between_claimants(url: str, bucket: Bucket, soak: bool) -> None:
    """Two machines increment one number again and again, and claim the same names."""
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
