"""The partial file of a download, which is compared with the expected content as it grows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.digests import CHUNK, ExpectedContent


class PartialFile:
    """The file with the bytes that were downloaded so far.

    Args:
        fd: a descriptor to read and write the partial file.
        size: the size in bytes of the complete file.
        begin: returns a new comparison with the expected content.

    Attributes:
        length: the number of bytes in the partial file.
        content: the comparison, which has received these bytes.
    """

    def __init__(self, fd: int, size: int, begin: Callable[[], ExpectedContent]) -> None:
        self.fd = fd
        self._size, self._begin = size, begin
        self.length, self.content = 0, begin()

    @classmethod
    @contextmanager
    def opened(
        cls,
        path: Path,
        size: int,
        begin: Callable[[], ExpectedContent],
        check: Callable[[], None],
    ) -> Iterator[PartialFile]:
        """Open or create a partial file, and pass its present bytes to the comparison.

        Args:
            path: the partial file.
            size: the size in bytes of the complete file.
            begin: returns a new comparison with the expected content.
            check: called often; may raise to end the reading.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o666)
        try:
            partial_file = cls(fd, size, begin)
            if os.fstat(fd).st_size > size:
                partial_file.clear()
            while chunk := os.pread(fd, CHUNK, partial_file.length):
                partial_file._count(chunk)
                check()
            yield partial_file
        finally:
            os.close(fd)

    @property
    def inode(self) -> int:
        """The inode of the file. It does not change when the file is renamed."""
        return os.fstat(self.fd).st_ino

    def append(self, chunk: bytes) -> None:
        """Append bytes to the file."""
        remaining = memoryview(chunk)
        while remaining:
            written_bytes = os.pwrite(self.fd, remaining, self.length)
            self._count(remaining[:written_bytes])
            remaining = remaining[written_bytes:]

    def clear(self) -> None:
        """Truncate the file to 0 bytes, and begin a new comparison."""
        os.ftruncate(self.fd, 0)
        self.length, self.content = 0, self._begin()

    def is_intact(self) -> bool:
        """Return whether the file is complete and has the expected content."""
        return self.length == self._size and self.content.is_expected

    def _count(self, chunk: bytes | memoryview) -> None:
        self.length += len(chunk)
        self.content.update(chunk)
