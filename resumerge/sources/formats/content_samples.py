"""A hash over samples of a weight file, which shows cheaply whether the file is still the same."""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from resumerge.sources.formats.registry import read_header

TENSORS = 64
SAMPLE = 4096
"""Bytes of each tensor: one page."""


def sample(path: Path) -> str:
    """A digest of 4 KiB from the middle of every tensor, or of 64 evenly spaced tensors.

    Needed for a file whose modification time has changed. A file that was copied or downloaded
    again has the same digest. Training, conversion or repair changes the bytes of every tensor that
    it touches, and so the digest. A change of a few numbers may go unnoticed.

    Returns:
        32 hex digits (xxh3-128).

    Raises:
        InputError: the header is damaged.
    """
    tensors = read_header(path, path.name).tensors.values()
    placed = sorted(tensors, key=lambda tensor: tensor.offset)
    count = min(TENSORS, len(placed))
    chosen = [placed[number * len(placed) // count] for number in range(count)]
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        for tensor in chosen:
            nbytes = min(SAMPLE, tensor.nbytes)
            middle = tensor.offset + (tensor.nbytes - nbytes) // 2
            digest.update(os.pread(file.fileno(), nbytes, middle))
    return digest.hexdigest()
