"""The header of a weight file of either format: which tensors it holds, and where."""

from __future__ import annotations

import os
from pathlib import Path

from resumerge.sources.formats.safetensors_header import read_header
from resumerge.sources.types import TensorInfo


def is_safetensors(name: str) -> bool:
    """Whether a file is safetensors; every other weight file is a torch checkpoint."""
    return name.endswith(".safetensors")


def read_weight_header(path: Path, name: str) -> tuple[dict[str, TensorInfo], str]:
    """Read and validate the header of a local file.

    Args:
        name: its path relative to the source's folder, kept in each `TensorInfo`.

    Returns:
        The tensors by name, and the xxh3-128 hex digest of the header.

    Raises:
        InputError: the file is truncated, its header is not valid, or it is not only weights.
    """
    if is_safetensors(name):
        return read_header(path, name)
    from resumerge.sources.formats.torch_checkpoint import (
        read_torch_header,  # with what pickles take
    )

    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return read_torch_header(
            lambda start, stop: os.pread(stream.fileno(), stop - start, start),
            size=size,
            file=name,
            where=str(path),
        )
