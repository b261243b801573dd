"""Reads ranges of a file's bytes into a buffer that the caller reuses.

Files on this disk are read by `preadv`. mmap is not used for two reasons: the kernel decides which
pages of a mapping count as this process's memory, and an I/O error in a mapping raises SIGBUS
instead of an exception. Streamed files are read from their server.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from resumerge.errors import Reason, Resumable
from resumerge.remote.file import RemoteFile
from resumerge.remote.forecast import Forecast, Range
from resumerge.remote.range_reader import RangeReader
from resumerge.sources.remote.files import remote_file
from resumerge.sources.types import FileStamp, Source
from resumerge.tensors import Stored
from resumerge.tensors.evaluation import InFile


class SourceReader:
    """The reader of ranges from the files of several sources. Threads may share it.

    Args:
        sources: the sources, by their numbers in the plan.
        check: called often while a read waits for a server; an exception that it raises ends the
            read.

    Attributes:
        ranges: the reader of streamed files.
    """

    def __init__(
        self,
        sources: Mapping[int, Source] | Sequence[Source],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._sources = sources
        self.ranges = RangeReader(check)
        self._streamed: dict[tuple[int, str], RemoteFile | None] = {}
        self._files: dict[tuple[int, str], int] = {}
        self._stamps: dict[tuple[int, str], FileStamp] = {}
        """The stamps of open files: from the source, or else taken when the file was opened."""
        self._lock = threading.Lock()

    def fill(self, tensor: InFile, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset` on in the file that holds a tensor.

        Raises:
            Resumable: the file is missing, shorter than its header says, or not readable.
        """
        file = self._streamed_file(tensor)
        if file is not None:
            self.ranges.fill(file, offset, buffer)
            return
        fd = self.descriptor(tensor)
        assert fd is not None
        length, filled_bytes = len(buffer), 0
        while filled_bytes < length:
            try:
                count = os.preadv(fd, [buffer[filled_bytes:]], offset + filled_bytes)
            except OSError as error:
                raise self._unreadable(tensor, error.strerror or str(error)) from error
            if count == 0:
                raise self._unreadable(tensor, "the file became shorter")
            filled_bytes += count

    def whole(self, tensor: Stored) -> bytes:
        """Return all bytes of a small tensor, which must be contiguous.

        Raises:
            Resumable: the file is missing, shorter than its header says, or not readable.
        """
        tensor_bytes = bytearray(tensor.nbytes)
        self.fill(tensor, tensor.offset, memoryview(tensor_bytes))
        return bytes(tensor_bytes)

    def expect(
        self, steps: Iterable[Iterable[tuple[Stored, int, int]]], *, keep: bool = False
    ) -> Forecast[RemoteFile]:
        """Request ranges of streamed files ahead of their reads; other files are ignored.

        Args:
            steps: for each step, the tensors that it reads, each with the index of its first
                element and the index after its last element.
            keep: as in `RangeReader.expect`.
        """
        return self.ranges.expect(map(self._streamed_ranges, steps), keep=keep)

    def descriptor(self, tensor: InFile) -> int | None:
        """Return an open descriptor of the file that holds a tensor; None for a streamed file.

        Raises:
            Resumable: the file cannot be opened.
        """
        source, file = key = tensor.source, tensor.file
        open_fd = self._files.get(key)
        if open_fd is not None:
            return open_fd
        if self._streamed_file(tensor) is not None:
            return None
        with self._lock:
            if key not in self._files:
                path = self._sources[source].path(file)
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    raise self._unreadable(tensor, error.strerror or str(error)) from error
                self._files[key] = fd
                source_file = self._sources[source].files.get(file)
                pinned_stamp = source_file.stamp if source_file is not None else None
                self._stamps[key] = pinned_stamp or FileStamp.of(os.fstat(fd))
            return self._files[key]

    def changed(self, files: Iterable[tuple[int, str]]) -> list[Path]:
        """Return the paths of the files that changed after their headers were read.

        Both the file at the path and the open file are compared, because they differ after a
        replacement. A file that is not open yet is compared if its source has its stamp.

        Args:
            files: the number of the source and the file's name in the source, for each file.
        """
        with self._lock:
            return [
                self._sources[source_number].path(name)
                for source_number, name in files
                if self._is_changed(source_number, name)
            ]

    def _is_changed(self, source: int, file: str) -> bool:
        key = (source, file)
        fd = self._files.get(key)
        stamp = self._stamps.get(key) if fd is not None else self._sources[source].files[file].stamp
        if stamp is None:
            return False
        try:
            stats = [os.stat(self._sources[source].path(file))]  # noqa: PTH116
            stats += [os.fstat(fd)] if fd is not None else []
        except OSError:
            return True
        is_linked = self._sources[source].linked
        return any(stamp.differs(FileStamp.of(stat), but_names=is_linked) for stat in stats)

    def release(self, source: int, file: str) -> None:
        """Close a file that is no longer needed. Deleting it then frees its disk space."""
        with self._lock:
            fd = self._files.pop((source, file), None)
            if fd is not None:
                os.close(fd)

    def close(self) -> None:
        """Close all files and end all requests."""
        self.ranges.close()
        with self._lock:
            for fd in self._files.values():
                os.close(fd)
            self._files.clear()

    def _streamed_ranges(
        self, reads: Iterable[tuple[Stored, int, int]]
    ) -> Iterator[Range[RemoteFile]]:
        for stored_tensor, first_element, end_element in reads:
            file = self._streamed_file(stored_tensor)
            if file is not None:
                start, nbytes = stored_tensor.byte_range(first_element, end_element)
                yield file, start, start + nbytes

    def _streamed_file(self, tensor: InFile) -> RemoteFile | None:
        key = tensor.source, tensor.file
        if key not in self._streamed:
            source = self._sources[tensor.source]
            is_streamed = source.is_streamed(tensor.file)
            self._streamed[key] = remote_file(source, tensor.file) if is_streamed else None
        return self._streamed[key]

    def _unreadable(self, tensor: InFile, why: str) -> Resumable:
        path = self._sources[tensor.source].path(tensor.file)
        return Resumable(
            Reason.SOURCE_UNAVAILABLE, f"Cannot read tensor {tensor.name!r} from {path}: {why}"
        )
