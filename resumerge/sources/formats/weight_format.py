"""The base class of the formats of weight files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from resumerge.errors import InputError, refuse
from resumerge.foreign_files import placeholder_kind
from resumerge.sources.types import Description
from resumerge.tensors import Stored

ReadRange = Callable[[int, int], bytes]
"""A function that returns bytes ``start:stop`` of a file, or fewer if the file ends before."""


class Header(NamedTuple):
    """The description of the tensors in a weight file.

    Args:
        tensors: the tensors, by name.
        digest: the xxh3-128 hex digest of the description, which pins a local file's content.
        left_out: the file's content other than tensors, in words: ``epoch (int)``.
        metadata: the texts in the header of a safetensors file, by key.
        described: the metadata of the model in a GGUF file; None for other formats.
        first: the bytes of a safetensors file before the first tensor; empty for other formats.
    """

    tensors: dict[str, Stored]
    digest: str
    left_out: tuple[str, ...] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    described: Description | None = None
    first: bytes = b""


class WeightFormat(ABC):
    """A format of weight files. The list `FORMATS` of `registry` has every format that is read.

    Attributes:
        name: the name in messages, like "safetensors file".
        suffixes: the endings of its files' names.
        model_file: the name of the file that holds a whole model. The index of a model in several
            files has this name followed by ``.index.json``.
        adapter_file: the name of the file that holds a whole adapter. The index has this name
            followed by ``.index.json``.
        any_name: whether its files may have any name and have no index. If true, `model_file` and
            `adapter_file` are not used.
        header_first: whether the header is at the start of the file and only these bytes are read
            for it. If true, the start of a remote file is requested at once, and cached by the
            identity of its content.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    model_file: ClassVar[str] = ""
    adapter_file: ClassVar[str] = ""
    any_name: ClassVar[bool] = False
    header_first: ClassVar[bool] = False

    @abstractmethod
    def read_header(self, read: ReadRange, *, size: int, file: str, where: str) -> Header:
        """Read and validate the header of a file. Nothing in the file may be executed or trusted.

        Args:
            read: reads ranges of the file, which may be local or remote.
            size: the size of the whole file, in bytes.
            file: the file's path relative to the source's folder, for each `Stored`.
            where: the file's name in messages.

        Raises:
            InputError: the file is truncated or damaged, or holds anything other than weights.
        """

    def read_local_header(self, path: Path, file: str) -> Header:
        """Read and validate the header of a local file, as `read_header` does."""
        with path.open("rb") as stream:
            fd = stream.fileno()
            return self.read_header(
                lambda start, stop: os.pread(fd, stop - start, start),
                size=os.fstat(fd).st_size,
                file=file,
                where=str(path),
            )

    def damaged(self, where: str, expected: str, found: str) -> InputError:
        """Return the error for a file that contradicts its format."""
        return damaged(self.name, where, expected, found)


def damaged_from_start(
    what: str, where: str, first: bytes, expected: str, found: str
) -> InputError:
    """Return the error for a file whose first bytes contradict its format.

    Args:
        what: the kind of file, like "torch checkpoint".
        where: the file's name in messages.
        first: the first bytes of the file, at least 8.
        expected: the content that the format requires.
        found: the content of the file. It is replaced if the file is recognised as another thing,
            like a Git LFS pointer.
    """
    if (kind_and_fix := placeholder_kind(first)) is not None:
        content, fix = kind_and_fix
        return refuse(f"This is no {what}", where=where, expected=expected, found=content, fix=fix)
    return damaged(what, where, expected, found)


def damaged(what: str, where: str, expected: str, found: str) -> InputError:
    """Return the error for a file that contradicts its format.

    Args:
        what: the kind of file, like "tokenizer".
        where: the file's name in messages.
        expected: the content that the format requires.
        found: the content of the file.
    """
    return refuse(
        f"The {what} is damaged",
        where=where,
        expected=expected,
        found=found,
        fix="download or save this file again",
    )
