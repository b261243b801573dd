"""Checksums of blocks and units: xxh3-128.

A unit's checksum is the hash of its blocks' hashes, in order. Threads can therefore hash different
blocks without waiting for each other.
"""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from resumerge.digests import HASH_BYTES, hash_file
from resumerge.kernels.hashes import hash_block
from resumerge.planning.plan import Unit


def file_checksum(path: Path) -> str:
    """Return the xxh3-128 of a file's bytes, as 32 hex digits."""
    digest = xxhash.xxh3_128()
    hash_file(path, digest)
    return digest.hexdigest()


def unit_checksum(hashes: bytes) -> str:
    """Return the xxh3-128 of the concatenated hashes of a unit's blocks, as 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(hashes)


def first_mismatch(fd: int, unit: Unit, hashes: bytes) -> int | None:
    """Read a unit's blocks; return the number of the first block that differs, or None.

    Args:
        fd: a descriptor of the shard's file, open for reading; it stays open.
        unit: the unit whose blocks are read.
        hashes: the expected hashes of the unit's first blocks, 16 bytes each; later blocks are not
            read.
    """
    for index in range(len(hashes) // HASH_BYTES):
        offset, nbytes = unit.block_span(index)
        expected_hash = hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES]
        if hash_block(os.pread(fd, nbytes, offset)) != expected_hash:
            return index
    return None
