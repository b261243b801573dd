"""Promise: bytes are compared with the best hash that S3 states of an object."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.buckets.base import Listed
from resumerge.buckets.content_hash import BucketContent, HashCheck, check_of
from resumerge.buckets.ranges import Hash, RangedBucket
from resumerge.errors import StoreError

DATA = bytes(range(256)) * 9
MD5 = hashlib.md5(DATA).hexdigest()


def no_parts(number: int) -> int:
    """Return 0: the server does not state the lengths of parts."""
    return 0


def etag_of(parts: list[bytes]) -> str:
    """Return the ETag that S3 makes: the MD5 of the parts' MD5s, and the number of parts."""
    joined = b"".join(hashlib.md5(part).digest() for part in parts)
    return f"{hashlib.md5(joined).hexdigest()}-{len(parts)}"


def content(
    head: Mapping[str, Any],
    etag: str,
    data: bytes = DATA,
    part: Callable[[int], int] = no_parts,
    bucket: str = "bucket",
) -> BucketContent:
    begin = check_of(bucket, head, etag, len(data), part)
    return BucketContent(begin)


def feed(found: BucketContent, data: bytes, cuts: list[int]) -> bool:
    """Pass the data in pieces, and return whether it is what was expected."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        found.update(memoryview(data)[start:stop])
    return found.is_expected


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


KMS = {"ServerSideEncryption": "aws:kms"}
STATED: dict[str, tuple[dict[str, Any], str]] = {
    "MD5": ({}, MD5),
    "SHA-256": ({"ChecksumSHA256": encoded(hashlib.sha256(DATA).digest()), **KMS}, "x"),
    "SHA-1": ({"ChecksumSHA1": encoded(hashlib.sha1(DATA).digest()), **KMS}, "x"),
    "CRC-32": ({"ChecksumCRC32": encoded(zlib.crc32(DATA).to_bytes(4, "big")), **KMS}, "0" * 32),
}


@pytest.mark.parametrize("name", STATED)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=4))
def test_what_the_server_states_is_compared(name: str, cuts: list[int]) -> None:
    head, etag = STATED[name]
    assert feed(content(head, etag), DATA, cuts)
    assert not feed(content(head, etag), damaged(DATA), cuts)


def test_a_crc_32_with_leading_zeros() -> None:
    data = b"62"
    crc = zlib.crc32(data)
    assert crc < 1 << 24
    head = {"ChecksumCRC32": encoded(crc.to_bytes(4, "big"))}
    assert feed(content(head, "x", data), data, [])
    assert not feed(content(head, "x", data), damaged(data), [])


UNKNOWN: dict[str, tuple[dict[str, Any], str, str]] = {
    "encrypted by KMS": (KMS, "0" * 32, "bucket"),
    "twice": ({"ServerSideEncryption": "aws:kms:dsse"}, "0" * 32, "bucket"),
    "by the customer's key": ({"SSECustomerAlgorithm": "AES256"}, "0" * 32, "bucket"),
    "in S3 Express": ({}, "0" * 32, "name--usw2-az1--x-s3"),
    "of another kind": ({}, "17c0ffee", "bucket"),
    "of parts, by KMS": (KMS, "0" * 32 + "-2", "bucket"),
    "of unknown parts": ({}, "0" * 32 + "-2", "bucket"),
    "a checksum of checksums": ({"ChecksumSHA256": "AAAA-2"}, "x", "bucket"),
    "another of them": ({"ChecksumCRC32": "AAAAAA==", "ChecksumType": "COMPOSITE"}, "x", "bucket"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_etag_that_is_no_hash_refuses_nothing(name: str) -> None:
    head, etag, bucket = UNKNOWN[name]
    assert feed(content(head, etag, bucket=bucket), DATA, [])


@given(
    data=st.binary(min_size=1, max_size=300),
    part=st.integers(1, 120),
    cuts=st.lists(st.integers(0, 400), max_size=5),
)
def test_objects_of_parts_are_compared_part_by_part(
    data: bytes, part: int, cuts: list[int]
) -> None:
    parts = [data[start : start + part] for start in range(0, len(data), part)]
    etag = etag_of(parts)

    def length(number: int) -> int:
        return len(parts[number - 1])

    assert feed(content({}, etag, data, length), data, cuts)
    assert not feed(content({}, etag, data, length), damaged(data), cuts)


@pytest.mark.parametrize(
    "lengths",
    [
        *([10, 90, 2204], [1000, 800, 504], [100, 100, 2104], [2000, 300, 4], [1000, 1304]),
        *([500, 300, 700, 500, 304], [1000, 1, 999, 304], [600, 500, 700, 504]),
    ],
)
def test_parts_of_different_lengths_are_not_guessed(lengths: list[int]) -> None:
    """The length that the first part implies for the last one may be wrong, or right by chance."""
    edges = np.cumsum([0, *lengths]).tolist()
    parts = [DATA[start:stop] for start, stop in pairwise(edges)]
    assert b"".join(parts) == DATA
    found = content({}, etag_of(parts), DATA, lambda number: lengths[number - 1])
    assert feed(found, DATA, [])


@pytest.mark.parametrize("count", [1, 9, 10, 99, 10_000])
def test_an_object_may_have_any_number_of_parts_that_s3_allows(count: int) -> None:
    data = (DATA * 5)[:10_000]
    length = len(data) // count
    parts = [data[length * n : length * (n + 1)] for n in range(count)]
    parts[-1] += data[length * count :]
    if len(parts[-1]) > length:  # which only a last part that is shorter would follow
        parts[-1:] = [parts[-1][:length], parts[-1][length:]]
    etag = etag_of(parts)
    assert feed(content({}, etag, data, lambda number: len(parts[number - 1])), data, [])
    assert not feed(content({}, etag, data, lambda n: len(parts[n - 1])), damaged(data), [])


def test_a_hash_contradicts_bytes_by_their_md5_alone() -> None:
    """An MD5 cannot contradict a hash of another kind."""
    for head, etag, expected in [
        ({}, MD5, [False, True]),
        (*STATED["SHA-256"], [False, False]),
        (*STATED["SHA-1"], [False, False]),
        (*STATED["CRC-32"], [False, False]),
    ]:
        begin = check_of("bucket", head, etag, len(DATA), no_parts)
        assert begin is not None
        check = begin()
        assert isinstance(check, HashCheck)
        assert [check.contradicts(md5) for md5 in (MD5, "0" * 32)] == expected


def test_a_sha_256_goes_before_the_etag() -> None:
    head = {"ChecksumSHA256": encoded(hashlib.sha256(DATA).digest())}
    assert feed(content(head, "0" * 32), DATA, [])


def test_an_empty_object_of_parts_whose_lengths_are_not_said() -> None:
    begin = check_of("bucket", {}, "0" * 32 + "-1", 0, lambda number: 0)
    assert begin is None


def test_lengths_that_cannot_be_asked_for_refuse_other_bytes() -> None:
    """The bytes are requested again: the network may have damaged them."""
    parts = [DATA[start : start + 1000] for start in range(0, len(DATA), 1000)]

    def length(number: int) -> int:
        if number == 2:
            raise StoreError("the network failed")
        return len(parts[number - 1])

    assert feed(content({}, etag_of(parts), DATA, length), DATA, [])
    assert not feed(content({}, etag_of(parts), DATA, length), damaged(DATA), [])


class Ranges(RangedBucket):
    """A bucket with one object, of which a request may bring too little or too much."""

    more = 0

    @property
    def server(self) -> str:
        return "server"

    def list(self, prefix: str) -> dict[str, Listed]:
        raise NotImplementedError

    def head(self, key: str) -> tuple[Listed, Hash | None]:
        return Listed(len(DATA), "etag"), None

    def _range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        return (DATA + bytes(10))[start : stop + self.more]

    def _open(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("known", [None, Listed(len(DATA), "etag")])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_range_has_the_bytes_that_were_asked_for(
    more: int, known: Listed | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response with too few or too many bytes is an error."""
    monkeypatch.setattr("resumerge.buckets.ranges.RANGE", 100)
    bucket = Ranges("box")
    bucket.more = more

    def read() -> bytes:
        with bucket.read("k", 50, 500, known=known) as body:
            return b"".join(body.pieces)

    if more:
        with pytest.raises(StoreError, match=f"sent {100 + more} of 100 bytes"):
            read()
    else:
        assert read() == DATA[50:500]
