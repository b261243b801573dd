"""Promise: requests to a bucket of each cloud are for exactly what is wanted, of exactly the object
that was listed, and the server's response is what is returned."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from served_objects import SCHEMES, Answer, Objects, Request, failure

from resumerge.buckets import ranges
from resumerge.buckets.base import Bucket, Listed
from resumerge.buckets.calls import open_bucket
from resumerge.buckets.errors import Changed
from resumerge.buckets.s3 import S3Bucket
from resumerge.errors import StoreError

DATA = bytes(range(256)) * 2


@pytest.fixture
def objects(served: Objects, monkeypatch: pytest.MonkeyPatch) -> Objects:
    monkeypatch.setattr(ranges, "RANGE", 200)
    monkeypatch.setattr(ranges, "ATTEMPTS", 3)
    served.clear()
    return served


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bucket(scheme: str, objects: Objects) -> Bucket:
    return open_bucket(f"{scheme}://box/m")


def spans(objects: Objects, key: str) -> list[str]:
    """Return the requested ranges; empty for a request without one."""
    return [
        r.headers.get("x-ms-range", r.headers.get("range", "")).removeprefix("bytes=")
        for r in objects.asked(key)
        if r.query.get("alt") == "media" or not r.path.startswith("/storage/v1/")
    ]


def conditions(objects: Objects, scheme: str, key: str, method: str = "GET") -> set[str]:
    """Return the ETags without quotes, or the generations, that the requests have as conditions."""
    requests = objects.asked(key, method)
    if scheme == "gs":
        return {r.query["generation"] for r in requests if r.query.get("alt") == "media"}
    found = {r.headers.get("if-match", '""') for r in requests}
    assert all(text[0] == text[-1] == '"' for text in found), "as HTTP has ETags"
    return {text[1:-1] for text in found}


def test_a_listing_has_every_object_below_the_prefix(objects: Objects, bucket: Bucket) -> None:
    """The listing has every page, with sizes and ETags, but no marks of folders or neighbours."""
    for name in ("m/a", "m/b/c", "m/b/", "m/d e&f", "m/z", "m2/a", "l", "m/"):
        objects.put(name, DATA[: len(name)])
    expected = {
        key.removeprefix("m/"): Listed(len(key), each.etag)
        for key, each in objects.stored.items()
        if key.startswith("m/") and not key.endswith("/")
    }
    assert bucket.list("m/") == expected and len(expected) == 4
    assert {"a", "b/c", "d e&f", "z"} == {*bucket.list("m/")}
    assert {*bucket.list("")} == {"m/a", "m/b/c", "m/d e&f", "m/z", "m2/a", "l"}
    assert bucket.list("n") == {}


def test_folders_of_azure_are_no_objects(objects: Objects) -> None:
    objects.put("m/folder", b"", headers={"x-ms-meta-hdi_isfolder": "true"})
    objects.put("m/file", b"", headers={"x-ms-meta-hdi_isfolder": "false"})
    assert {*open_bucket("az://box/m").list("m/")} == {"file"}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    "start, stop",
    [(0, None), (0, 512), (0, 1), (0, 200), (7, 8), (7, 207), (7, 208), (200, None), (511, None),
     (300, 512), (0, 600), (450, 600)],
)  # fmt: skip
def test_the_bytes_that_are_wanted(
    objects: Objects, scheme: str, bucket: Bucket, start: int, stop: int | None, is_known: bool
) -> None:
    """The bytes are requested once, all of one version, and the response states which they are."""
    stored = objects.put("m/a", DATA)
    known = Listed(len(DATA), stored.etag) if is_known else None
    with bucket.read("m/a", start, stop, known=known) as body:
        assert b"".join(body.pieces) == DATA[start:stop]
    end = min(stop or 512, 512)
    assert (body.nbytes, body.version.strip('"')) == (512, stored.etag)
    assert body.headers["ETag"] == f'"{stored.etag}"'
    assert body.headers["Content-Length"] == str(end - start)
    if start or stop is not None:
        assert body.headers["Content-Range"] == f"bytes {start}-{end - 1}/512"
        assert body.status == 206
    else:
        assert (body.headers["Content-Range"], body.status) == (None, 200)
    if scheme == "s3":
        last = "" if stop is None else str(stop - 1)
        assert spans(objects, "m/a") == [f"{start}-{last}" if start or stop else ""]
        assert conditions(objects, scheme, "m/a") == ({stored.etag} if is_known else {""})
    else:
        edges = [*range(start, end, 200), end]
        wanted = [f"{a}-{b - 1}" for a, b in pairwise(edges)]
        assert spans(objects, "m/a") == wanted
        assert conditions(objects, scheme, "m/a") == {stored.etag}
        heads = objects.asked("m/a", "HEAD") if scheme == "az" else objects.asked("m/a")
        heads = [r for r in heads if "alt" not in r.query]
        assert len(heads) == (0 if is_known else 1)


def test_an_empty_object_has_no_bytes(objects: Objects, bucket: Bucket) -> None:
    objects.put("m/a", b"")
    with bucket.read("m/a") as body:
        assert (b"".join(body.pieces), body.nbytes, body.status) == (b"", 0, 200)


def test_what_is_read_at_once_is_for_the_caller_to_say(objects: Objects) -> None:
    objects.put("m/a", DATA)
    with open_bucket("s3://box").read("m/a", piece=200) as body:
        assert [len(piece) for piece in body.pieces] == [200, 200, 112]


def test_what_is_stored_compressed_is_read_as_it_is_stored(
    objects: Objects, bucket: Bucket
) -> None:
    """The size and the hash are those of the compressed bytes."""
    data = gzip.compress(DATA * 9)
    objects.put("m/a", data, headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})
    known = bucket.list("m/")["a"]
    with bucket.read("m/a", known=known) as body:
        assert b"".join(body.pieces) == data and known.nbytes == len(data)


@pytest.mark.parametrize("scheme", ["s3", "az"])  # Google's counts seconds
@pytest.mark.parametrize("status", [500, 503])
def test_what_fails_is_asked_for_again_in_a_moment(
    objects: Objects, bucket: Bucket, status: int, sleeps: list[float]
) -> None:
    """The clouds' libraries repeat a request, and report an error soon."""
    objects.put("m/a", DATA)
    left = [1]

    def choose(request: Request) -> Answer | None:
        left[0] -= 1
        return failure(status) if left[0] >= 0 else None

    objects.choose = choose
    assert [*bucket.list("m/")] == ["a"]
    objects.requests.clear()
    left[0] = 1000
    with pytest.raises(StoreError, match=f"HTTP {status}") as told:
        bucket.list("m/")
    assert not told.value.denied and sum(sleeps) < 30
    assert len(objects.requests) == 3


def test_each_process_has_connections_of_its_own(
    objects: Objects, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = bucket.api()
    assert bucket.api() is mine
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert bucket.api() is not mine
    assert bucket.api() is bucket.api()


def test_the_clock_of_s3_is_that_of_its_latest_answer(objects: Objects) -> None:
    bucket = open_bucket("s3://clock")
    assert isinstance(bucket, S3Bucket) and bucket.at is None
    for hour in (3, 2):
        date = {"Date": f"Mon, 01 Jan 2024 0{hour}:04:05 GMT", "ETag": '"x"'}
        objects.choose = lambda request, date=date: Answer(200, b"", date)  # type: ignore[misc]
        bucket.nbytes("a", "x")
        assert bucket.at == datetime(2024, 1, 1, hour, 4, 5, tzinfo=UTC)


def test_a_bucket_of_aws_that_is_in_another_region_is_told(objects: Objects) -> None:
    """The redirect does not count as one to a login page."""
    status, body, headers = failure(301, "PermanentRedirect")
    here = {**headers, "x-amz-bucket-region": "eu-west-1"}
    objects.choose = lambda request: Answer(status, body, here)
    with pytest.raises(StoreError) as told:
        open_bucket("s3://box").list("")
    assert told.value.denied and "AWS_REGION" in told.value.fix


def test_another_version_than_was_listed_is_not_read(
    objects: Objects, scheme: str, bucket: Bucket
) -> None:
    """Another version is refused even if it has the same bytes, and no request is repeated."""
    known = Listed(512, objects.put("m/a", DATA).etag)
    objects.put("m/a", DATA)
    objects.requests.clear()
    for start in (0, 9):
        with pytest.raises(Changed), bucket.read("m/a", start, known=known) as body:
            b"".join(body.pieces)
    assert len(objects.asked("m/a")) == 2
    assert conditions(objects, scheme, "m/a") == {known.etag}
    with pytest.raises(Changed):
        bucket.nbytes("m/a", known.etag)
    with pytest.raises(Changed):
        bucket.check("m/a", known)


@pytest.mark.parametrize("scheme", ["gs", "az"])  # S3 sends it in one answer
def test_an_object_that_is_replaced_is_read_again_until_it_stands_still(
    objects: Objects, scheme: str
) -> None:
    """The last version is read; an object that never stops changing is a temporary error."""
    objects.put("m/a", DATA)
    left = [2]

    def replace(request: Request) -> None:
        is_head = request.method == "HEAD" or (scheme == "gs" and "alt" not in request.query)
        if not is_head and left[0]:
            left[0] -= 1
            objects.put("m/a", DATA[left[0] % 7 :])

    objects.choose = replace
    bucket = open_bucket(f"{scheme}://box/m")
    with bucket.read("m/a") as body:
        assert b"".join(body.pieces) == DATA and body.nbytes == 512
    left[0] = 1000
    objects.requests.clear()
    with pytest.raises(StoreError, match="changes all the time") as told, bucket.read("m/a"):
        pass
    assert not told.value.denied and len(spans(objects, "m/a")) == 3


def test_one_that_does_not_exist(objects: Objects, scheme: str, bucket: Bucket) -> None:
    """A missing object can be neither read nor measured nor checked."""
    objects.put("m/ab", DATA)
    known = Listed(512, "7")
    with pytest.raises(FileNotFoundError), bucket.read("m/a"):
        pass
    with pytest.raises(FileNotFoundError):
        bucket.nbytes("m/a", "7")
    with pytest.raises(FileNotFoundError):
        bucket.check("m/a", known)
    if scheme != "gs":  # whose generation may have been replaced
        with pytest.raises(FileNotFoundError), bucket.read("m/a", known=known) as body:
            b"".join(body.pieces)


def test_its_size_is_that_of_the_version_that_is_meant(
    objects: Objects, scheme: str, bucket: Bucket
) -> None:
    stored = objects.put("m/a", DATA)
    assert bucket.nbytes("m/a", stored.etag) == 512
    if scheme == "s3":
        assert conditions(objects, scheme, "m/a", "HEAD") == {stored.etag}


def check_of(bucket: Bucket, objects: Objects, data: bytes) -> bool | None:
    """Return whether a check of `m/a` accepts these bytes; None without a check."""
    stored = objects.stored["m/a"]
    begin = bucket.check("m/a", Listed(len(stored.data), stored.etag))
    if begin is None:
        return None
    check = begin()
    check.update(memoryview(data)[:50])
    check.update(memoryview(data)[50:])
    return check.fits


def test_the_bytes_are_compared_with_what_the_server_states(
    objects: Objects, scheme: str, bucket: Bucket
) -> None:
    """Each check begins with the first byte, whatever the checks before it read."""
    facts = {"etag": hashlib.md5(DATA).hexdigest()} if scheme == "s3" else {}
    objects.put("m/a", DATA, **facts)
    for data in (DATA, DATA[:-1], DATA[:-1] + b"x", DATA):
        assert check_of(bucket, objects, data) is (data == DATA)
    objects.put("m/a", DATA, hashes=False)
    assert check_of(bucket, objects, DATA) is None


PARTS = (200, 200, 112)


def parted(objects: Objects, parts: tuple[int, ...] = PARTS) -> None:
    """Store an object of parts."""
    edges = [sum(parts[:n]) for n in range(len(parts) + 1)]
    md5s = [hashlib.md5(DATA[a:b]).digest() for a, b in pairwise(edges)]
    etag = f"{hashlib.md5(b''.join(md5s)).hexdigest()}-{len(parts)}"
    objects.put("m/a", DATA, etag=etag, parts=parts)


def test_the_parts_of_an_object_are_asked_for_by_their_numbers(objects: Objects) -> None:
    """The first and the last part of a right object are requested.

    The requests have no condition, because some servers compare it with the part's own ETag.
    """
    parted(objects)
    bucket = open_bucket("s3://box/m")
    assert check_of(bucket, objects, DATA)
    heads = objects.asked("m/a", "HEAD")
    assert [r.query.get("partNumber") for r in heads] == [None, "1", "3"]
    assert ["if-match" in r.headers for r in heads] == [True, False, False]
    assert [r.headers.get("x-amz-checksum-mode") for r in heads] == ["ENABLED", None, None]
    assert check_of(bucket, objects, DATA[:-1] + b"x") is False
    parted(objects, (200, 100, 100, 112))
    assert check_of(bucket, objects, DATA) is None
    parted(objects, (150, 100, 200, 62))
    assert check_of(bucket, objects, DATA[:-1] + b"x") is True, "nothing is known of unequal parts"


@pytest.mark.parametrize("status", [400, 405, 501, 200])
def test_a_server_that_knows_no_parts_states_nothing_of_them(objects: Objects, status: int) -> None:
    """The server refuses the request for a part, or answers with the whole object."""
    parted(objects)
    objects.choose = lambda r: (
        Answer(status, DATA, {"ETag": '"x"'} if status == 200 else {})
        if "partNumber" in r.query
        else None
    )
    assert check_of(open_bucket("s3://box/m"), objects, DATA) is None


def test_a_server_that_fails_at_a_part_is_asked_again_later(objects: Objects) -> None:
    parted(objects)
    objects.choose = lambda r: failure(403) if "partNumber" in r.query else None
    with pytest.raises(StoreError, match="denies access"):
        check_of(open_bucket("s3://box/m"), objects, DATA)


def test_a_checksum_of_s3_is_asked_for_and_compared(objects: Objects) -> None:
    import base64

    sha = base64.b64encode(hashlib.sha256(DATA).digest()).decode()
    objects.put("m/a", DATA, headers={"x-amz-checksum-sha256": sha})
    bucket = open_bucket("s3://box/m")
    assert check_of(bucket, objects, DATA) is True
    assert check_of(bucket, objects, DATA[:-1]) is False


def test_a_response_of_s3_is_ended_by_another_thread(objects: Objects) -> None:
    """The response ends at once, although the server has more to send."""
    longer = {"ETag": '"x"', "Content-Length": "100000"}
    objects.choose = lambda request: Answer(200, DATA, longer)
    with pytest.raises(OSError), open_bucket("s3://box").read("m/slow", piece=512) as body:
        assert next(body.pieces) == DATA
        threading.Thread(target=body.abort).start()
        next(body.pieces)
