"""The partial file of a download, its length, and the comparison of its bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resumerge.digests import CHUNK, ExpectedContent


class PartialFile:
    """The bytes of a file that were downloaded so far.

    Args:
        fd: a descriptor to read and write the file.
        size: the size of the whole file in bytes.
        begin: begins a comparison of the bytes.

    Attributes:
        length: the number of bytes.
        content: the comparison of the bytes so far.
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
        """Open or create the file, and compare the bytes in it.

        Args:
            path: the partial file.
            size: the size of the whole file in bytes.
            begin: begins a comparison of the bytes.
            check: called often; an exception that it raises ends the reading.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o666)
        try:
            part = cls(fd, size, begin)
            if os.fstat(fd).st_size > size:
                part.clear()
            while chunk := os.pread(fd, CHUNK, part.length):
                part._count(chunk)
                check()
            yield part
        finally:
            os.close(fd)

    @property
    def inode(self) -> int:
        """The inode of the file, which keeps it to the end."""
        return os.fstat(self.fd).st_ino

    def append(self, chunk: bytes) -> None:
        """Write more bytes."""
        view = memoryview(chunk)
        while view:
            written = os.pwrite(self.fd, view, self.length)
            self._count(view[:written])
            view = view[written:]

    def clear(self) -> None:
        """Discard all bytes."""
        os.ftruncate(self.fd, 0)
        self.length, self.content = 0, self._begin()

    def is_intact(self) -> bool:
        """Return whether the file is complete and as expected."""
        return self.length == self._size and self.content.is_expected

    def _count(self, chunk: bytes | memoryview) -> None:
        self.length += len(chunk)
        self.content.update(chunk)
