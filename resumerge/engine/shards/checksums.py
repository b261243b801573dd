"""Checksums of blocks and units: xxh3-128.

A unit's checksum is the hash of its blocks' hashes in order, so that threads that hash different
blocks need not wait for each other.
"""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from resumerge.digests import HASH_BYTES, hash_file
from resumerge.kernels.hashes import hash_block
from resumerge.planning.plan import Unit


def file_checksum(path: Path) -> str:
    """Return 32 hex digits: the `hash_block` of a whole file's bytes."""
    digest = xxhash.xxh3_128()
    hash_file(path, digest)
    return digest.hexdigest()


def unit_checksum(hashes: bytes) -> str:
    """Return 32 hex digits: the hash of the concatenated hashes of all blocks."""
    return xxhash.xxh3_128_hexdigest(hashes)


def first_mismatch(fd: int, unit: Unit, hashes: bytes) -> int | None:
    """Read a unit's blocks and compare them; return the number of the first that differs, or None.

    Args:
        fd: the descriptor of the shard's file.
        unit: the unit.
        hashes: the hashes of its first blocks, 16 bytes each; later blocks are not read.
    """
    for index in range(len(hashes) // HASH_BYTES):
        offset, nbytes = unit.block_span(index)
        expected = hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES]
        if hash_block(os.pread(fd, nbytes, offset)) != expected:
            return index
    return None
