"""The list of all formats of weight files, and the choice of a format by a file's name."""

from __future__ import annotations

from pathlib import Path

from resumerge.sources.formats.gguf import Gguf
from resumerge.sources.formats.safetensors import Safetensors
from resumerge.sources.formats.torch_checkpoint import TorchCheckpoint
from resumerge.sources.formats.weight_format import Header, WeightFormat

_TORCH = TorchCheckpoint()

FORMATS: list[WeightFormat] = [Safetensors(), _TORCH, Gguf()]
"""The formats in order of preference: if a model is saved in two formats, the first is read."""

UNREADABLE = (".h5",)
"""The suffixes of weight files that cannot be read, for messages."""


def format_of(file: str) -> WeightFormat:
    """Return the format of a weight file by its name.

    A file without a known suffix is taken as a torch checkpoint: torch.save adds no suffix.
    """
    return next(
        (weight_format for weight_format in FORMATS if file.endswith(weight_format.suffixes)),
        _TORCH,
    )


def is_readable(file: str) -> bool:
    """Return whether a file's name has the suffix of one of `FORMATS`."""
    return file.endswith(
        tuple(suffix for weight_format in FORMATS for suffix in weight_format.suffixes)
    )


def looks_like_weights(file: str) -> bool:
    """Return whether a file's name has the suffix of a weight file, in `UNREADABLE` or not."""
    return is_readable(file) or file.endswith(UNREADABLE)


def read_header(path: Path, file: str) -> Header:
    """Read and validate the header of a local weight file.

    Args:
        path: the file on this disk; `file`, and not this path, decides the format.
        file: the file's path relative to the source's folder, for each `Stored`.

    Raises:
        InputError: the file is truncated or damaged, or holds anything other than weights.
    """
    return format_of(file).read_local_header(path, file)
