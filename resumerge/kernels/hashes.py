"""Hashes of blocks: xxh3-128."""

from __future__ import annotations

import xxhash

from resumerge.native import _kernels

HASH_BYTES = 16


def hash_block(data: bytes | memoryview) -> bytes:
    """16 bytes."""
    return xxhash.xxh3_128_digest(data)


def hash_blocks(data: bytes | memoryview, size: int) -> bytes:
    """16 bytes for each block of `size` bytes; the last one may be shorter, or empty if alone."""
    if not len(data):
        return hash_block(data)
    starts = range(0, len(data), size)
    return _kernels.hash_blocks(data, size) or b"".join(
        hash_block(data[start : start + size]) for start in starts
    )
