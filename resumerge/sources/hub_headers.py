"""Safetensors headers of files that stay on the Hub: range requests of the first bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from resumerge.sources.headers import header_length, parse_header
from resumerge.sources.hub_network import hub_call
from resumerge.sources.hub_snapshot import Snapshot
from resumerge.sources.model import TensorInfo

FIRST_REQUEST = 64 * 1024
"""Bytes asked for at once: the whole header of most files, in one round trip."""

TIMEOUT = 30.0
"""Seconds without an answer until a request counts as failed."""


def remote_header(snapshot: Snapshot, name: str) -> dict[str, TensorInfo]:
    """Read and validate the header of a file on the Hub, without downloading the file.

    Raises:
        InputError: the header is not valid, or the Hub denies the file.
        Resumable: the network failed.
    """
    size = snapshot.files[name].size
    where = f"{snapshot.repo}@{snapshot.commit}/{name}"
    first = _bytes_of(snapshot, name, 0, min(FIRST_REQUEST, size))
    length = header_length(first[:8], file_size=size, where=where)
    if 8 + length > len(first):
        first += _bytes_of(snapshot, name, len(first), 8 + length)
    return parse_header(first[8 : 8 + length], file_size=size, file=name, where=where)


def _bytes_of(snapshot: Snapshot, name: str, start: int, stop: int) -> bytes:
    """Bytes ``start:stop`` of a file. Memory stays bounded even if the server ignores ranges."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    url = hf_hub_url(snapshot.repo, name, revision=snapshot.commit)

    def request() -> bytes:
        headers = {
            **build_hf_headers(library_name="resumerge"),
            "Range": f"bytes={start}-{stop - 1}",
            "Accept-Encoding": "identity",
        }
        with _streamed(url, headers) as (response, chunks):
            hf_raise_for_status(response)
            skip = start if response.status_code == 200 else 0
            wanted = skip + stop - start
            got = bytearray()
            for chunk in chunks:
                got += chunk
                if len(got) >= wanted:
                    break
        if len(got) < wanted:
            raise ConnectionError(f"{len(got)} of {wanted} bytes came of {name}")
        return bytes(got[skip:wanted])

    if start >= stop:
        return b""
    return hub_call(request, repo=snapshot.repo, revision=snapshot.commit)


@contextmanager
def _streamed(url: str, headers: dict[str, str]) -> Iterator[tuple[Any, Iterator[bytes]]]:
    """A streamed GET and its chunks, on the HTTP library that huggingface_hub uses."""
    from huggingface_hub.utils import get_session

    session: Any = get_session()
    if callable(getattr(session, "stream", None)):  # httpx, from huggingface_hub 1.0 on
        with session.stream("GET", url, headers=headers, timeout=TIMEOUT) as response:
            yield response, response.iter_bytes(16384)
    else:  # requests
        with session.get(url, headers=headers, timeout=TIMEOUT, stream=True) as response:
            yield response, response.iter_content(16384)
