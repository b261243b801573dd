"""A sample of a weight file's bytes: cheap to take, and different once the model was trained on."""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from resumerge.sources.formats.weight_file import read_weight_header

TENSORS = 64
PIECE = 4096
"""Bytes of each tensor: one page."""


def sample(path: Path) -> str:
    """A digest of 4 KiB out of the middle of every tensor, or of 64 of them that lie evenly.

    It tells whether a file whose time of change is another still is the same one: a file that was
    copied or downloaded again has the same bytes, and a model that was trained on, converted or
    mended has others in every tensor that was changed. An edit of a few numbers may stay unseen.

    Returns:
        32 hex digits (xxh3-128).

    Raises:
        InputError: the header is damaged.
    """
    tensors, _ = read_weight_header(path, path.name)
    placed = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    count = min(TENSORS, len(placed))
    chosen = [placed[number * len(placed) // count] for number in range(count)]
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        for tensor in chosen:
            nbytes = min(PIECE, tensor.nbytes)
            middle = tensor.offset + (tensor.nbytes - nbytes) // 2
            digest.update(os.pread(file.fileno(), nbytes, middle))
    return digest.hexdigest()
