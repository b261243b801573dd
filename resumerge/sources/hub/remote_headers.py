"""Headers of weight files on the Hub, read by range requests without downloading the file."""

from __future__ import annotations

from resumerge.hub.cache import HubFile
from resumerge.hub.client import hub_call
from resumerge.hub.http import get
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.sources.formats.base import Header
from resumerge.sources.formats.registry import format_of

FIRST_REQUEST = 32 * 1024
"""Bytes requested at first: the whole header of most safetensors files, in one round trip."""


def remote_header(file: HubFile, metadata: MetadataCache) -> Header:
    """Read and validate the header of a file on the Hub.

    A header at the start of the file is cached: the etag identifies it.

    Raises:
        InputError: the header is not valid, or the Hub denies the file.
        Resumable: the network failed.
    """
    known = format_of(file.name)
    cached = metadata.header(file.etag) if known.header_first else None
    start = _FileStart(file, cached or b"")

    def read(begin: int, end: int) -> bytes:
        end = min(end, file.size)
        return start.read(begin, end) if known.header_first else read_range(file, begin, end)

    where = f"{file.repo}@{file.commit}/{file.name}"
    header = known.read_header(read, size=file.size, file=file.name, where=where)
    if known.header_first and cached is None:
        metadata.store_header(file.etag, start.header)
    return header


class _FileStart:
    """The first bytes of a file, requested as far as they are needed."""

    def __init__(self, file: HubFile, data: bytes) -> None:
        self._file, self._data = file, data
        self._needed = 0

    def read(self, begin: int, end: int) -> bytes:
        self._needed = max(self._needed, end)
        if end > len(self._data):
            ahead = max(end, min(FIRST_REQUEST, self._file.size))
            self._data += read_range(self._file, len(self._data), ahead)
        return self._data[begin:end]

    @property
    def header(self) -> bytes:
        """The bytes that were read."""
        return self._data[: self._needed]


def read_range(file: HubFile, start: int, stop: int) -> bytes:
    """Request bytes ``start:stop`` of a file. Memory is bounded even if the server ignores ranges.

    Raises:
        InputError: the Hub denies the file.
        Resumable: the network failed.
    """
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(file.repo, file.name, revision=file.commit)

    def request() -> bytes:
        with get(url, {"Range": f"bytes={start}-{stop - 1}"}) as response:
            skip = start if response.status == 200 else 0
            wanted = skip + stop - start
            received = bytearray()
            for chunk in response.chunks:
                received += chunk
                if len(received) >= wanted:
                    break
        if len(received) < wanted:
            raise ConnectionError(
                f"the server sent only {len(received)} of {wanted} bytes of {file.name}"
            )
        return bytes(received[skip:wanted])

    if start >= stop:
        return b""
    return hub_call(request, repo=file.repo, revision=file.commit)
