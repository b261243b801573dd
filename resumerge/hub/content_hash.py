r"""The hash that identifies a file's content on the Hub and in the cache.

The etag of an LFS or Xet file is the SHA-256 of its bytes. The etag of any other file is its git
blob id: the SHA-1 of ``blob <size>\0`` followed by the bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from resumerge.digests import Digest, ExpectedContent, hash_file

REGULAR_LIMIT = 10_000_000
"""The size in bytes above which the Hub accepts a file only as LFS or Xet."""


def content_digest(etag: str, size: int) -> Digest | None:
    """Return a digest whose hex digits equal `etag` once it has received all bytes of the file.

    Args:
        etag: the etag that the Hub lists.
        size: the size of the whole file in bytes.

    Returns:
        the digest; None if the etag is not a hash of the content, as on some mirrors of the Hub.
    """
    if re.fullmatch("[0-9a-f]{64}", etag):
        return hashlib.sha256()
    if re.fullmatch("[0-9a-f]{40}", etag):
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return None


class ExpectedHash(ExpectedContent):
    """A comparison of bytes with an etag. If the etag is not a hash, any bytes are accepted.

    Args:
        etag: the etag that the Hub lists.
        size: the size of the whole file in bytes.
    """

    def __init__(self, etag: str, size: int) -> None:
        self._etag, self._digest = etag, content_digest(etag, size)

    def update(self, data: bytes | memoryview, /) -> None:
        if self._digest is not None:
            self._digest.update(data)

    @property
    def is_expected(self) -> bool:
        return self._digest is None or self._digest.hexdigest() == self._etag


def is_intact(path: Path, etag: str, size: int, check: Callable[[], None] | None = None) -> bool:
    """Read a whole file, and return whether it has this size and etag.

    If the etag is not a hash, only the size is compared.

    Args:
        path: the file, which is only read if its size is the expected one.
        etag: the etag that the Hub lists.
        size: the expected size in bytes.
        check: called often; may raise to end the reading.
    """
    if path.stat().st_size != size:
        return False
    digest = content_digest(etag, size)
    if digest is None:
        return True
    return hash_file(path, digest, check) == size and digest.hexdigest() == etag


def guess_etag(path: Path) -> str:
    """Return the etag that a file probably has on the Hub.

    The Hub stores binary files and large files in LFS or Xet, and all other files as git blobs. A
    file counts as binary by git's own rule: one of its first 8,000 bytes is 0.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        is_large = size > REGULAR_LIMIT or b"\0" in stream.read(8000)
    digest = content_digest("0" * (64 if is_large else 40), size)
    assert digest is not None
    hash_file(path, digest)
    return digest.hexdigest()
