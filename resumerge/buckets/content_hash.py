"""Comparisons of an object's bytes with the server's hash, and the record of a downloaded file.

S3 servers can store several hashes of an object. The first available one of this list is compared:

- a SHA-256 or SHA-1 of the whole object (``x-amz-checksum-…``);
- the ETag, if it is an MD5: of an object that was written in one request, or (with ``-N``) of the
  MD5s of its N parts;
- a CRC-32.

If an object has none of them, only its size is compared.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from resumerge.buckets.errors import Changed
from resumerge.digests import Digest, ExpectedContent
from resumerge.foreign_files import UnfitFile, read_foreign

_LARGEST_RECORD = 16_384
_MD5 = re.compile("[0-9a-f]{32}")
_MD5_OF_PARTS = re.compile("([0-9a-f]{32})-([1-9][0-9]{0,4})")
_SESSION_BUCKET = "--x-s3"
"""The suffix of the names of S3 Express buckets, whose ETags are not hashes."""

Begin = Callable[[], "Check"]


class Check(ABC):
    """A comparison of an object's bytes with one hash."""

    @abstractmethod
    def update(self, data: bytes | memoryview, /) -> None:
        """Add the next bytes."""

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether the bytes that were added have the expected hash."""


class HashCheck(Check):
    """A comparison with a hash of all bytes.

    Args:
        digest: a digest of the hash's algorithm, without any bytes.
        expected: the hash in hex digits.
    """

    def __init__(self, digest: Digest, expected: str) -> None:
        self._digest, self._expected = digest, expected

    def update(self, data: bytes | memoryview, /) -> None:
        self._digest.update(data)

    @property
    def fits(self) -> bool:
        return self._digest.hexdigest() == self._expected

    def contradicts(self, md5: str) -> bool:
        """Return whether the expected hash is an MD5 that differs from `md5` (hex digits)."""
        return getattr(self._digest, "name", "") == "md5" and self._expected != md5


class PartsCheck(Check):
    """A comparison with the MD5 of the MD5s of an object's parts.

    All parts except the last are assumed to have the same size. If they do not, the hash cannot be
    compared.

    Args:
        part: the size in bytes of the first part.
        expected: the MD5 of the MD5s in hex digits.
        are_equal: returns whether all parts except the last have that size. It makes one request
            for each part, so it is called only if the hash differs.
    """

    def __init__(self, part: int, expected: str, are_equal: Callable[[], bool]) -> None:
        self._part, self._expected, self._are_equal = part, expected, are_equal
        self._left, self._md5 = part, hashlib.md5(usedforsecurity=False)
        self._joined = hashlib.md5(usedforsecurity=False)

    def update(self, data: bytes | memoryview, /) -> None:
        view = memoryview(data)
        while view:
            if not self._left:
                self._joined.update(self._md5.digest())
                self._left, self._md5 = self._part, hashlib.md5(usedforsecurity=False)
            piece = view[: self._left]
            self._md5.update(piece)
            self._left -= len(piece)
            view = view[len(piece) :]

    @property
    def fits(self) -> bool:
        md5_of_md5s = self._joined.copy()
        md5_of_md5s.update(self._md5.digest())
        return md5_of_md5s.hexdigest() == self._expected or not self._are_equal()


class _Crc32:
    """zlib's CRC-32 as a digest."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _md5() -> Digest:
    return hashlib.md5(usedforsecurity=False)


def _sha1() -> Digest:
    return hashlib.sha1(usedforsecurity=False)


def check_of(
    bucket: str, head: Mapping[str, Any], etag: str, size: int, part: Callable[[int], int]
) -> Begin | None:
    """Return a function that begins the check of an object of S3 by the server's hashes.

    Args:
        bucket: the bucket's name, whose ending marks an S3 Express bucket.
        head: the server's response to HeadObject with ``ChecksumMode=ENABLED``.
        etag: the object's ETag, without quotes.
        size: the object's size in bytes.
        part: returns the size in bytes of a part, numbered from 1; 0 if unknown.

    Returns:
        the function; None if the server has no hash that can be compared.
    """
    is_of_parts = head.get("ChecksumType") == "COMPOSITE"

    def checksum(name: str, digest: Callable[[], Digest]) -> Begin | None:
        checksum_text = str(head.get(name) or "")
        if is_of_parts or "-" in checksum_text or not checksum_text:
            return None
        expected_hex = base64.b64decode(checksum_text).hex()
        return lambda: HashCheck(digest(), expected_hex)

    is_encrypted = str(head.get("ServerSideEncryption") or "").startswith("aws:kms")
    is_hash = not is_encrypted and "SSECustomerAlgorithm" not in head
    is_hash = is_hash and not bucket.endswith(_SESSION_BUCKET)
    return (
        checksum("ChecksumSHA256", hashlib.sha256)
        or checksum("ChecksumSHA1", _sha1)
        or (_etag_check(etag, size, part) if is_hash else None)
        or checksum("ChecksumCRC32", _Crc32)
    )


def _etag_check(etag: str, size: int, part: Callable[[int], int]) -> Begin | None:
    if _MD5.fullmatch(etag):
        return lambda: HashCheck(_md5(), etag)
    parts_match = _MD5_OF_PARTS.fullmatch(etag)
    if parts_match is None:
        return None
    expected_md5, count = parts_match[1], int(parts_match[2])
    length = part(1)
    last_length = size - (count - 1) * length
    # Parts may have any sizes, but the hash can only be compared if they have one size.
    if not length or last_length > length or (count > 1 and part(count) != last_length):
        return None

    def are_equal() -> bool:
        try:
            return all(part(number) == length for number in range(2, count))
        except (OSError, Changed):
            return True  # unknown: count it as damage, so that the bytes are requested again

    return lambda: PartsCheck(length, expected_md5, are_equal)


class BucketContent(ExpectedContent):
    """A comparison of a download with the server's hash, and its xxh3-128 for the record.

    Args:
        begin: begins the comparison with the server's hash; None if the server has no hash.
    """

    def __init__(self, begin: Begin | None) -> None:
        self._check = begin() if begin is not None else None
        self._xxh3 = xxhash.xxh3_128()

    def update(self, data: bytes | memoryview, /) -> None:
        self._xxh3.update(data)
        if self._check is not None:
            self._check.update(data)

    @property
    def is_expected(self) -> bool:
        return self._check is None or self._check.fits

    @property
    def xxh3(self) -> str:
        """The xxh3-128 of the bytes that were added, in hex digits."""
        return self._xxh3.hexdigest()


def record_as_json(name: str, etag: str, size: int, xxh3: str) -> bytes:
    """Return the record of a downloaded file, as JSON."""
    return json.dumps({"name": name, "etag": etag, "size": size, "xxh3": xxh3}).encode()


def read_record(path: Path) -> tuple[str, str, int, str] | None:
    """Return the name, ETag, size and xxh3-128 in a record; None without a valid record."""
    try:
        record = json.loads(read_foreign(path, _LARGEST_RECORD))
        name, etag, size, xxh3 = (record[key] for key in ("name", "etag", "size", "xxh3"))
    except (OSError, UnfitFile, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_valid = all(type(text) is str for text in (name, etag, xxh3)) and type(size) is int
    return (name, etag, size, xxh3) if is_valid else None
