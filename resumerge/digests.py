"""Digests of contents, computed while bytes arrive or from a file."""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

CHUNK = 1 << 20
"""The bytes that are hashed at once. Meanwhile hashlib releases the interpreter's lock."""

HASH_BYTES = 16
"""The bytes of a block's hash, an xxh3-128."""


class Digest(Protocol):
    """The methods of hashlib's objects that this program uses."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add data to the hashed bytes."""

    def hexdigest(self) -> str:
        """Return the hash in hex digits."""


class ExpectedContent(ABC):
    """A comparison of a file's bytes, which arrive in order, with the file's expected content."""

    @abstractmethod
    def update(self, data: bytes | memoryview, /) -> None:
        """Add the file's next bytes."""

    @property
    @abstractmethod
    def is_expected(self) -> bool:
        """Whether the bytes so far are exactly the expected content."""


def hash_file(
    path: Path,
    digest: Digest | ExpectedContent,
    check: Callable[[], None] | None = None,
    *,
    most: int = sys.maxsize,
) -> int:
    """Update a digest with the bytes of a file.

    Args:
        path: the file, which is read unbuffered in chunks of `CHUNK` bytes.
        digest: receives the bytes in order.
        check: called after each chunk; an exception that it raises ends the reading.
        most: the most bytes to read, from the beginning of the file.

    Returns:
        the number of bytes read.
    """
    buffer = memoryview(bytearray(CHUNK))
    total = 0
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer[: most - total]):
            digest.update(buffer[:count])
            total += count
            if check is not None:
                check()
    return total


def sha256_of(
    path: Path, check: Callable[[], None] | None = None, *, most: int = sys.maxsize
) -> str:
    """Return the SHA-256 of a file in hex digits.

    Args:
        path: the file to read from its beginning.
        check: called after each chunk; an exception that it raises ends the reading.
        most: the most bytes to read, from the beginning of the file.
    """
    digest = hashlib.sha256()
    hash_file(path, digest, check, most=most)
    return digest.hexdigest()
