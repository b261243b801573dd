r"""The hash that identifies a file's content on the Hub and in its cache.

The etag of an LFS or Xet file is the SHA-256 of its bytes. The etag of any other file is the id of
its git blob: the SHA-1 of ``blob <size>\0`` followed by its bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from resumerge.digests import Digest, ExpectedContent, hash_file

REGULAR_LIMIT = 10_000_000
"""The number of bytes above which the Hub accepts a file through LFS or Xet only."""


def content_digest(etag: str, size: int) -> Digest | None:
    """Return a digest whose hex form equals `etag` after all bytes of the file.

    Args:
        etag: the etag as the Hub lists it.
        size: the size of the whole file in bytes.

    Returns:
        the digest; None if the etag is no hash of the content, as on some mirrors of the Hub.
    """
    if re.fullmatch("[0-9a-f]{64}", etag):
        return hashlib.sha256()
    if re.fullmatch("[0-9a-f]{40}", etag):
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return None


class ExpectedHash(ExpectedContent):
    """A comparison of bytes with an etag; if the etag is no hash, all bytes count as expected.

    Args:
        etag: the etag as the Hub lists it.
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
    """Read a whole file and compare it with its etag; with its size only if the etag is no hash."""
    if path.stat().st_size != size:
        return False
    digest = content_digest(etag, size)
    if digest is None:
        return True
    return hash_file(path, digest, check) == size and digest.hexdigest() == etag


def guess_etag(path: Path) -> str:
    """Return the etag that the Hub probably gives to a file's content.

    The Hub stores binary files and large files in LFS or Xet, and all others as git blobs. A file
    is taken for binary by git's own rule: a zero byte in the first 8,000.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        is_large = size > REGULAR_LIMIT or b"\0" in stream.read(8000)
    digest = content_digest("0" * (64 if is_large else 40), size)
    assert digest is not None
    hash_file(path, digest)
    return digest.hexdigest()
