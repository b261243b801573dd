"""Headers of remote weight files, read by range requests without downloading the files."""

from __future__ import annotations

from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.formats.registry import format_of
from resumerge.sources.formats.weight_format import Header

FIRST_REQUEST = 32 * 1024
"""The size of the first request, in bytes. Most safetensors headers fit in it: one round trip."""


def remote_header(file: RemoteFile, metadata: MetadataCache) -> Header:
    """Read and validate the header of a remote file.

    A header at the start of the file is cached under the identity of the content.

    Raises:
        InputError: the header is invalid, or the server denies the file.
        Resumable: the network failed, or the content changed.
    """
    file_format = format_of(file.name)
    cached_start = metadata.header(file.identity) if file_format.header_first else None
    file_start = _FileStart(file, cached_start or b"")

    def read(begin: int, end: int) -> bytes:
        end = min(end, file.size)
        return (
            file_start.read(begin, end) if file_format.header_first else file.read_range(begin, end)
        )

    header = file_format.read_header(read, size=file.size, file=file.name, where=file.where)
    if file_format.header_first and cached_start is None:
        metadata.store_header(file.identity, file_start.header)
    return header


class _FileStart:
    """The first bytes of a remote file, which are requested when they are needed.

    Args:
        file: the file, of which `read` requests only bytes that `data` lacks.
        data: the bytes that the cache already has; may be empty.
    """

    def __init__(self, file: RemoteFile, data: bytes) -> None:
        self._file, self._data = file, data
        self._needed = 0

    def read(self, begin: int, end: int) -> bytes:
        self._needed = max(self._needed, end)
        if end > len(self._data):
            ahead = max(end, min(FIRST_REQUEST, self._file.size))
            self._data += self._file.read_range(len(self._data), ahead)
        return self._data[begin:end]

    @property
    def header(self) -> bytes:
        """The bytes that the format has read; more may have been requested from the server."""
        return self._data[: self._needed]
