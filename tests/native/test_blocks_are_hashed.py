"""Blocks have the hashes that the library of xxHash gives, on every processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xxhash
from both_ways import varied
from hypothesis import given
from hypothesis import strategies as st

from resumerge.kernels.hashes import hash_blocks
from resumerge.native import _kernels

CONTENT = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
EDGES = [1, 240, 241, 256, 1023, 1024, 1025, 1088, 1089, 2048, 2049, 65_536]


def of_library(data: memoryview, size: int) -> bytes:
    starts = range(0, len(data), size)
    return b"".join(xxhash.xxh3_128_digest(data[start : start + size]) for start in starts)


@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize("length", EDGES)
def test_at_the_edges_of_its_parts(compiled: str, length: int, size: int) -> None:
    for start in range(8):  # whatever the alignment
        data = CONTENT[start : start + length].data
        found = _kernels.hash_blocks(data, size)
        short = min(size, (length - 1) % size + 1) < 241
        assert found == (b"" if short else of_library(data, size))
        assert hash_blocks(data, size) == of_library(data, size)


@varied
@given(st.integers(0, 5_000), st.integers(1, 20_000), st.integers(1, 10_000))
def test_of_any_length(compiled: str, start: int, length: int, size: int) -> None:
    data = CONTENT[start : start + length].data
    assert hash_blocks(data, size) == of_library(data, size)


def test_of_nothing() -> None:
    """An empty tensor has one block."""
    assert hash_blocks(b"", 0) == xxhash.xxh3_128_digest(b"")


@pytest.mark.parametrize(
    ("data", "size"),
    [(b"bytes", 0), (b"bytes", -1), (b"bytes", 2**63), (b"bytes", 0.5), ("text", 1), (None, 1),
     (CONTENT[::2], 1), (CONTENT.view(np.uint16), 1), (np.zeros(1, object), 1)],
)  # fmt: skip
def test_wrong_calls_are_refused(data: Any, size: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        _kernels.hash_blocks(data, size)
