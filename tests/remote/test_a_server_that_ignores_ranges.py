"""A server that answers a request for a range with the whole file costs no more memory."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from resumerge.remote.file import RemoteFile, Response

CHUNK = 1 << 20
CHUNKS = 64


def read_range(start: int, stop: int, chunks: int = CHUNKS) -> bytes:
    """Read a range from a server that sends so many chunks, each filled with its number."""
    body = (bytes([number]) * CHUNK for number in range(chunks))
    answer = Response(200, {}, body, abort=lambda: None)
    file = SimpleNamespace(
        name="model.bin",
        size=CHUNKS * CHUNK,
        request=lambda first, last: nullcontext(answer),
        call=lambda receive: receive(),
    )
    return RemoteFile.read_range(file, start, stop)  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [0, 10, CHUNK - 1, CHUNK, 5 * CHUNK + 3])
def test_it_is_read_as_a_range_is(start: int) -> None:
    whole = b"".join(bytes([number]) * CHUNK for number in range(8))
    assert read_range(start, start + CHUNK + 7) == whole[start : start + CHUNK + 7]


def test_bytes_before_the_range_are_not_held() -> None:
    tracemalloc.start()
    try:
        assert read_range(60 * CHUNK, 60 * CHUNK + 8) == bytes([60]) * 8
        assert tracemalloc.get_traced_memory()[1] < 8 * CHUNK
    finally:
        tracemalloc.stop()


def test_a_body_that_ends_before_the_range_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="sent only 5 of 10 bytes"):
        read_range(2 * CHUNK - 5, 2 * CHUNK + 5, chunks=2)
