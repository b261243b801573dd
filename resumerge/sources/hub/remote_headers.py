"""Headers of weight files that stay on the Hub, by range requests."""

from __future__ import annotations

from resumerge.hub.cache import HubFile
from resumerge.hub.client import hub_call
from resumerge.hub.http import get
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.sources.formats.safetensors_header import header_length, parse_header
from resumerge.sources.formats.torch_checkpoint import read_torch_header
from resumerge.sources.formats.weight_file import is_safetensors
from resumerge.sources.types import TensorInfo

FIRST_REQUEST = 32 * 1024
"""Bytes asked for at once: the whole header of most shards, in one round trip."""


def remote_header(file: HubFile, metadata: MetadataCache) -> dict[str, TensorInfo]:
    """Read and validate the header of a file on the Hub, without downloading the file.

    A header that was read before is not asked for again: the etag says that it is the same.

    Raises:
        InputError: the header is not valid, or the Hub denies the file.
        Resumable: the network failed.
    """
    where = f"{file.repo}@{file.commit}/{file.name}"
    if not is_safetensors(file.name):
        return read_torch_header(
            lambda start, stop: _bytes_of(file, start, stop),
            size=file.size,
            file=file.name,
            where=where,
        )[0]
    head = metadata.header(file.etag)
    if head is None:
        head = _read_head(file, where)
        tensors = parse_header(head[8:], file_size=file.size, file=file.name, where=where)
        metadata.store_header(file.etag, head)
        return tensors
    return parse_header(head[8:], file_size=file.size, file=file.name, where=where)


def _read_head(file: HubFile, where: str) -> bytes:
    first = _bytes_of(file, 0, min(FIRST_REQUEST, file.size))
    length = header_length(first[:8], file_size=file.size, where=where)
    if 8 + length > len(first):
        first += _bytes_of(file, len(first), 8 + length)
    return first[: 8 + length]


def _bytes_of(file: HubFile, start: int, stop: int) -> bytes:
    """Bytes ``start:stop`` of a file. Memory stays bounded even if the server ignores ranges."""
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(file.repo, file.name, revision=file.commit)

    def request() -> bytes:
        with get(url, {"Range": f"bytes={start}-{stop - 1}"}) as response:
            skip = start if response.status == 200 else 0
            wanted = skip + stop - start
            got = bytearray()
            for chunk in response.chunks:
                got += chunk
                if len(got) >= wanted:
                    break
        if len(got) < wanted:
            raise ConnectionError(f"{len(got)} of {wanted} bytes came of {file.name}")
        return bytes(got[skip:wanted])

    if start >= stop:
        return b""
    return hub_call(request, repo=file.repo, revision=file.commit)
