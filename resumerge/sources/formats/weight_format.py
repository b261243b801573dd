"""The base class of the formats of weight files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from resumerge.errors import InputError, refuse
from resumerge.foreign_files import stand_in
from resumerge.sources.types import Description
from resumerge.tensors import Stored

ReadRange = Callable[[int, int], bytes]
"""A function that returns bytes ``start:stop`` of a file; fewer at the file's end."""


class Header(NamedTuple):
    """The description of the tensors in a weight file.

    Args:
        tensors: the tensors, by name.
        digest: the xxh3-128 hex digest of the description; it pins a local file's content.
        left_out: the file's content beside tensors, in words: ``epoch (int)``.
        metadata: texts that the file's writer put beside the tensors.
        described: the file's own description of its model, in formats that have one.
        first: the file's bytes before the first tensor, in formats where data follows a header.
    """

    tensors: dict[str, Stored]
    digest: str
    left_out: tuple[str, ...] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    described: Description | None = None
    first: bytes = b""


class WeightFormat(ABC):
    """A format of weight files. To be read, it is in the list `FORMATS` of `registry`.

    Attributes:
        name: the name in messages, like "safetensors file".
        suffixes: the endings of its files' names.
        model_file: the name of the file that holds a whole model. The index of a model in several
            files, a JSON object with ``weight_map``, has this name with ``.index.json`` after it.
        adapter_file: the name of the file that holds a whole adapter; its index is named alike.
        any_name: whether its files have any name, and no index: then the two names are not used.
        header_first: whether the header is the first bytes of the file and nothing else is read for
            it. Then the header of a file on the Hub is requested ahead, and cached by its etag.
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
            read: reads the file, which may be local or on the Hub.
            size: the size of the whole file, in bytes.
            file: its path relative to the source's folder, for each `Stored`.
            where: the file as named in messages.

        Raises:
            InputError: the file is truncated or damaged, or holds anything but weights.
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
        where: the file.
        first: its first bytes, at least 8.
        expected: what the format asks for.
        found: what the file has instead, unless its first bytes are of a known text.
    """
    if (other := stand_in(first)) is not None:
        lies_there, fix = other
        return refuse(
            f"This is no {what}", where=where, expected=expected, found=lies_there, fix=fix
        )
    return damaged(what, where, expected, found)


def damaged(what: str, where: str, expected: str, found: str) -> InputError:
    """Return the error for a file that contradicts its format.

    Args:
        what: the kind of file, like "tokenizer".
        where: the file.
        expected: what the format asks for.
        found: what the file has instead.
    """
    return refuse(
        f"The {what} is damaged",
        where=where,
        expected=expected,
        found=found,
        fix="download or save this file again",
    )
