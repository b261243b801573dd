"""Promise: what a bucket is asked for happens once and whole, or is said not to have happened."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from any_bucket import (
    NAME,
    PART,
    ignore,
    large,
    parts_sent,
    place,
    proxy,
    test_a_neighbour_and_marks_of_folders_are_no_files_of_the_mirror,
    test_a_process_that_is_killed_leaves_parts_that_the_next_one_does_not_send_again,
    test_an_exclusive_write_whose_answer_is_lost,
    test_an_upload_is_not_mixed_up_with_that_of_a_longer_name,
    test_no_update_is_lost_between_claimants,
    test_only_uploads_of_the_files_that_are_named_are_aborted,
    test_parts_of_another_file_are_replaced,
    test_what_fails_for_long_fails_for_now,
    test_what_was_created_is_not_replaced,
    upload_two_parts,
    url,
)
from loopback_s3 import Bucket, Proxy

from resumerge.errors import InputError
from resumerge.mirror.lease import Lease
from resumerge.mirror.stores.base import Store, StoreError
from resumerge.mirror.stores.buckets import s3_uploads
from resumerge.mirror.stores.buckets.s3 import S3Client, S3Store
from resumerge.mirror.stores.registry import open_store

__all__ = [
    "large",
    "place",
    "proxy",
    "test_a_neighbour_and_marks_of_folders_are_no_files_of_the_mirror",
    "test_a_process_that_is_killed_leaves_parts_that_the_next_one_does_not_send_again",
    "test_an_exclusive_write_whose_answer_is_lost",
    "test_an_upload_is_not_mixed_up_with_that_of_a_longer_name",
    "test_no_update_is_lost_between_claimants",
    "test_only_uploads_of_the_files_that_are_named_are_aborted",
    "test_parts_of_another_file_are_replaced",
    "test_what_fails_for_long_fails_for_now",
    "test_what_was_created_is_not_replaced",
    "url",
]

ONE_GOES_WRONG = {
    ("503", "uploads"),
    ("cut", "partNumber=2"),
    ("cut answer", "uploadId="),
    ("lost", "uploads"),
    ("lost", "uploadId="),
}

# Uploads


def test_whoever_may_stop_an_upload_is_asked_at_each_part_that_is_there(
    place: Store, proxy: Proxy, large: Path
) -> None:
    """Parts that the server already has are hashed, which takes time, and none of them is sent."""
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
    nbytes: int | None, soak: bool,
) -> None:  # fmt: skip
    if nbytes is None and kind not in ("cut", "lost") and not soak:
        pytest.skip("each kind in one request: of parts the other kinds with --soak")
    large.write_bytes(large.read_bytes()[:nbytes])
    proxy.once(kind, "PUT", part)
    place.upload(NAME, large, ignore)
    assert sum(proxy.wrong.values()) == 1
    assert bucket.contents("p/") == {NAME: large.read_bytes()}


@pytest.mark.parametrize("kind", ["503", "cut", "cut answer", "lost"])
@pytest.mark.parametrize("method, part", [("POST", "uploads"), ("PUT", "partNumber=2"),
                                          ("POST", "uploadId=")])  # fmt: skip
def test_one_request_of_an_upload_goes_wrong(
    place: Store, proxy: Proxy, bucket: Bucket, large: Path, kind: str, method: str, part: str,
    soak: bool,
) -> None:  # fmt: skip
    if (kind, part) not in ONE_GOES_WRONG and not soak:
        pytest.skip("each kind, and each request, once: every pair with --soak")
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
    assert bucket.unfinished_uploads() == []


@pytest.mark.parametrize("nbytes", [1000, 2 * PART + 1000])
def test_what_a_callback_asks_for_is_not_reported_to_it(
    place: Store, bucket: Bucket, large: Path, nbytes: int
) -> None:
    """A callback that renews the lease would wait for itself if it were called for the renewal."""
    large.write_bytes(large.read_bytes()[:nbytes])
    within: list[int] = []

    def moved(nbytes: int) -> None:
        assert not within, "called by the request that it makes"
        within.append(nbytes)
        place.put({"lease": b"renewed"})
        within.pop()

    place.upload(NAME, large, moved)
    assert bucket.contents("p/") == {NAME: large.read_bytes(), "lease": b"renewed"}


def test_a_copy_that_differs_is_no_copy(
    place: Store, proxy: Proxy, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of an object whose ETag is not an MD5 sum are read back and compared."""
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


def test_a_bucket_that_is_not_there_fails_for_good(place: Store, bucket: Bucket) -> None:
    missing = open_store("s3://no-such-bucket/p")
    for do in (missing.list, lambda: missing.put({"a": b"1"}), lambda: missing.get("a")):
        with pytest.raises(StoreError, match=r"NoSuchBucket|AccessDenied") as error:
            do()
        assert error.value.denied


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
