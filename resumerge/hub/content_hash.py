"""The hash that names a file's content on the Hub, and in its cache.

An LFS or Xet file's etag is the SHA-256 of its bytes; any other file's is the id of its git blob:
the SHA-1 of ``blob <size>\\0`` and its bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

CHUNK = 1 << 20
"""Bytes hashed at once; hashlib lets other threads run meanwhile."""


class Digest(Protocol):
    """What hashlib's objects have."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def content_digest(etag: str, size: int) -> Digest | None:
    """A digest whose hex form is `etag` once it was fed the file's bytes.

    Args:
        etag: as the Hub lists it.
        size: of the whole file, in bytes.

    Returns:
        None where the etag is no hash of the content (some mirrors' are not).
    """
    if re.fullmatch("[0-9a-f]{64}", etag):
        return hashlib.sha256()
    if re.fullmatch("[0-9a-f]{40}", etag):
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return None


def feed(path: Path, digest: Digest, check: Callable[[], None] | None = None) -> int:
    """Feed a file's bytes to a digest.

    Args:
        check: called between two chunks; what it raises ends the reading.

    Returns:
        The number of bytes.
    """
    buffer = memoryview(bytearray(CHUNK))
    total = 0
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(buffer[:count])
            total += count
            if check is not None:
                check()
    return total


def is_intact(path: Path, etag: str, size: int, check: Callable[[], None] | None = None) -> bool:
    """Read a whole file and compare it with its etag; where that is no hash, its size alone."""
    if path.stat().st_size != size:
        return False
    digest = content_digest(etag, size)
    if digest is None:
        return True
    return feed(path, digest, check) == size and digest.hexdigest() == etag
