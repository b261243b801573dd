"""What a source is: one input model, pinned, with the place of every tensor in its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumerge.recipe.model import ModelRef


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor stands.

    Args:
        dtype: the safetensors name, like ``BF16``.
        file: path relative to the source's folder.
        offset: of the first byte, from the start of the file.
        nbytes: length of the data in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class SourceFile:
    """A file that tensors are read from, with what pins its content.

    Args:
        size: bytes.
        identity: JSON facts that change when the content does: ``etag`` on the Hub;
            ``mtime_ns`` and ``header`` (xxh3-128 of the safetensors header) for local files.
        present: whether the file is on this disk, whole.
    """

    name: str
    size: int
    identity: Mapping[str, Any]
    present: bool = True


@dataclass(frozen=True)
class Source:
    """One input model, pinned.

    Args:
        kind: ``local`` or ``hub``.
        folder: where its files are, or will be once fetched.
        revision: the commit of a Hub repo; None for a local folder.
        config: config.json, parsed; empty where there is none.
        tensors: by name.
        files: the weight files, by name relative to `folder`.
        companions: of a Hub model, the files beside the weights that belong to it, likewise.
    """

    ref: ModelRef
    kind: str
    folder: Path
    revision: str | None
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    files: Mapping[str, SourceFile] = field(default_factory=dict)
    companions: Mapping[str, SourceFile] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """What pins the content, as JSON: part of the fingerprint."""
        return {
            "model": self.ref.text,
            "kind": self.kind,
            "revision": self.revision,
            "files": {
                name: {"size": f.size, **f.identity} for name, f in sorted(self.files.items())
            },
        }
