"""What a source is: one input model, pinned, with the place of every tensor in its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumerge.recipe.types import ModelRef


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

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """What has to be read to read it: itself, unless it is made of others."""
        return (self,)

    @property
    def verbatim(self) -> bool:
        """Whether its bytes stand in its file as they are read."""
        return True


@dataclass(frozen=True)
class StridedTensor(TensorInfo):
    """A tensor whose elements do not follow each other in the file: a view, saved as such.

    Args:
        strides: for each dimension, how many elements apart its neighbours are; 0 or more.
    """

    strides: tuple[int, ...]

    @property
    def verbatim(self) -> bool:
        return False


@dataclass(frozen=True)
class SourceFile:
    """A file that tensors are read from, with what pins its content.

    Args:
        size: bytes.
        identity: JSON facts that change when the content does: ``etag`` on the Hub;
            ``mtime_ns`` and ``header`` (xxh3-128 of the file's header) for local files.
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
        kind: ``local`` or ``hub``, or ``lora`` for a model with an adapter.
        folder: where its files are, or will be once fetched; of a ``lora``, the model's.
        revision: the commit of a Hub repo; None for a local folder; of a ``lora``, both, if there
            is one.
        config: config.json, parsed; empty where there is none.
        tensors: by name.
        files: the weight files, by name relative to `folder`; of a ``lora``, ``base/…`` and
            ``adapter/…``.
        companions: of a Hub model, the files beside the weights that belong to it, likewise.
        base: of a ``lora``, the model without its adapter.
        adapter: of a ``lora``, the adapter alone: its config is adapter_config.json.
    """

    ref: ModelRef
    kind: str
    folder: Path
    revision: str | None
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    files: Mapping[str, SourceFile] = field(default_factory=dict)
    companions: Mapping[str, SourceFile] = field(default_factory=dict)
    base: Source | None = None
    adapter: Source | None = None

    @property
    def parts(self) -> dict[str, Source]:
        """The folders and repos that it is read from, by what their files' names begin with."""
        if self.base is None or self.adapter is None:
            return {"": self}
        return {"base/": self.base, "adapter/": self.adapter}

    def part_of(self, file: str) -> tuple[Source, str]:
        """Which part a file of `files` belongs to, and its name there."""
        return next(
            (part, file.removeprefix(prefix))
            for prefix, part in self.parts.items()
            if file.startswith(prefix)
        )

    def path(self, file: str) -> Path:
        """Where a file of `files` is, or will be once fetched."""
        part, name = self.part_of(file)
        return part.folder / name

    def identity(self) -> dict[str, Any]:
        """What pins the content, as JSON: part of the fingerprint."""
        return {
            "model": self.ref.text,
            "kind": self.kind,
            "revision": self.revision,
            "files": {
                name: {"size": f.size, **f.identity} for name, f in sorted(self.files.items())
            },
            **({"adapter_config": dict(self.adapter.config)} if self.adapter else {}),
        }
