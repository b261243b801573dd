"""Reads companions: files beside the weights, or files that the weight file contains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resumerge.foreign_files import read_foreign
from resumerge.sources.companions import LARGEST
from resumerge.sources.gguf.contained import contained_file
from resumerge.sources.json_object import json_object
from resumerge.sources.types import Source


def companion(source: Source, name: str) -> bytes | Path:
    """Return a companion's path, or its bytes if the weight file contains it."""
    return contained_file(source, name) if name in source.contained.names else source.folder / name


def read_companion(source: Source, name: str) -> bytes:
    """Return the bytes of a companion.

    Raises:
        ValueError: the file is too large or not a regular file.
        OSError: the file cannot be read.
    """
    content = companion(source, name)
    return content if isinstance(content, bytes) else read_foreign(content, LARGEST)


def read_companion_object(source: Source, name: str) -> dict[str, Any]:
    """Return the JSON object in a companion.

    Raises:
        ValueError: as for `read_companion` and `json_object`.
        OSError: the file cannot be read.
    """
    return json_object(read_companion(source, name))
