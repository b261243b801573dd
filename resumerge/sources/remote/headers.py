"""Headers of remote weight files, read by range requests without downloading the file."""

from __future__ import annotations

from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.formats.registry import format_of
from resumerge.sources.formats.weight_format import Header

FIRST_REQUEST = 32 * 1024
"""The bytes requested at first: the whole header of most safetensors files, in one round trip."""


def remote_header(file: RemoteFile, metadata: MetadataCache) -> Header:
    """Read and validate the header of a remote file.

    A header at the start of the file is cached: the content's identity is its key.

    Raises:
        InputError: the header is not valid, or the server denies the file.
        Resumable: the network failed, or the content changed.
    """
    known = format_of(file.name)
    cached = metadata.header(file.identity) if known.header_first else None
    start = _FileStart(file, cached or b"")

    def read(begin: int, end: int) -> bytes:
        end = min(end, file.size)
        return start.read(begin, end) if known.header_first else file.read_range(begin, end)

    header = known.read_header(read, size=file.size, file=file.name, where=file.where)
    if known.header_first and cached is None:
        metadata.store_header(file.identity, start.header)
    return header


class _FileStart:
    """The first bytes of a file, requested as far as they are needed."""

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
        """The bytes that the format asked for; more may have been requested."""
        return self._data[: self._needed]
