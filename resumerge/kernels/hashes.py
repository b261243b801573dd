"""Hashes of blocks: xxh3-128."""

from __future__ import annotations

import xxhash

from resumerge.native import _kernels


def hash_block(data: bytes | memoryview) -> bytes:
    """Return the hash of one block: 16 bytes."""
    return xxhash.xxh3_128_digest(data)


def hash_blocks(data: bytes | memoryview, size: int) -> bytes:
    """Return the concatenated hashes of the blocks of some data: 16 bytes for each block.

    A block has `size` bytes; the last one may be shorter. Empty data count as one empty block.
    """
    if not len(data):
        return hash_block(data)
    starts = range(0, len(data), size)
    return _kernels.hash_blocks(data, size) or b"".join(
        hash_block(data[start : start + size]) for start in starts
    )
