"""Digests of contents, computed as bytes arrive, or from a file."""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

CHUNK = 1 << 20
"""The number of bytes hashed at once; hashlib releases the interpreter's lock meanwhile."""

HASH_BYTES = 16
"""The bytes of the hash of a block: xxh3-128."""


class Digest(Protocol):
    """The methods of hashlib's objects that are used here."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add data to what is hashed."""

    def hexdigest(self) -> str:
        """Return the hash in hex digits."""


class ExpectedContent(ABC):
    """A comparison of a file's bytes, which arrive in order, with what the file should hold."""

    @abstractmethod
    def update(self, data: bytes | memoryview, /) -> None:
        """Add the next bytes."""

    @property
    @abstractmethod
    def is_expected(self) -> bool:
        """Whether the bytes so far are the whole content."""


def hash_file(
    path: Path,
    digest: Digest | ExpectedContent,
    check: Callable[[], None] | None = None,
    *,
    most: int = sys.maxsize,
) -> int:
    """Update a digest with the bytes of a file.

    Args:
        path: the file.
        digest: gets the bytes in order.
        check: called after each chunk; an exception that it raises ends the reading.
        most: the largest number of bytes to read, from the beginning.

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
        path: the file.
        check: called after each chunk; an exception that it raises ends the reading.
        most: the largest number of bytes to read, from the beginning.
    """
    digest = hashlib.sha256()
    hash_file(path, digest, check, most=most)
    return digest.hexdigest()
