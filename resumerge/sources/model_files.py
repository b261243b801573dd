"""How a model or an adapter is opened from its files, wherever these are: one sequence of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumerge.sources.checkpoint_files import checkpoint_files, checkpoint_tensors
from resumerge.sources.formats.weight_format import Header
from resumerge.sources.index import Contents, check_index, combined, read_config, read_index
from resumerge.sources.pipelines import PIPELINE, Pipeline, is_pipeline, read_pipeline
from resumerge.sources.types import Source
from resumerge.tensors import Stored


@dataclass(frozen=True)
class Opened:
    """What was read of a model, without its weights.

    Args:
        tensors: by name.
        headers: of the weight files, by name.
        config: config.json, parsed.
        notes: what a person should know of the model.
        components: of a pipeline, how the names of each component's weight files begin.
    """

    tensors: Mapping[str, Stored]
    headers: Mapping[str, Header]
    config: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    components: Mapping[str, str] = field(default_factory=dict)


class ModelFiles(ABC):
    """The files of a model or an adapter in one place: a folder, or a version on a server.

    Attributes:
        model: the model's name in notes.
        where: the place in messages about several files.
        folder: where the files are, or will be after the download.
        single: the one weight file that the recipe names; empty for a whole model.
    """

    model: str
    where: str
    folder: Path
    single: str

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of all files, relative to `folder`; of a pipeline with its components'."""

    @abstractmethod
    def fetch(self, names: Iterable[str]) -> None:
        """Put small files into `folder`, if they are not there.

        Raises:
            InputError: the server refuses, or has no such file.
            Resumable: the network failed.
        """

    @abstractmethod
    def check(self, contents: Contents, weights: list[str]) -> None:
        """Check that weight files were found, and that the index names none that is missing.

        Raises:
            InputError: the message says what is there instead.
        """

    @abstractmethod
    def headers(self, weights: list[str]) -> dict[str, Header]:
        """Read and validate the headers of weight files.

        Raises:
            InputError: a file is missing or damaged.
            Resumable: the network failed.
        """

    @abstractmethod
    def source(self, opened: Opened) -> Source:
        """Return the source that these files are, with what pins each of them."""


def open_files(files: ModelFiles, contents: Contents) -> Source:
    """Read config, index and headers of a model or an adapter; no weights.

    Args:
        files: the files in their place.
        contents: whether the files should be those of a model or of an adapter.

    Raises:
        InputError: there are no weights, or a file is missing or damaged.
        Resumable: the network failed.
    """
    if files.single:
        headers = files.headers([files.single])
        found = combined(headers, files.where)
        tensors, notes = checkpoint_tensors(files.model, headers, found, {})
        return files.source(Opened(tensors, headers, notes=notes))
    if is_pipeline(contents, files.names):
        pipeline = _read_pipeline(files)
        _, notes = checkpoint_tensors(files.model, pipeline.headers, pipeline.tensors, {})
        return files.source(
            Opened(pipeline.tensors, pipeline.headers, notes=notes, components=pipeline.stems)
        )
    found, headers, _ = _read_weights(files, contents)
    config = read_config(files.folder, contents.config)
    tensors, notes = checkpoint_tensors(files.model, headers, found, config)
    return files.source(Opened(tensors, headers, config, notes))


def _read_pipeline(files: ModelFiles) -> Pipeline:
    files.fetch([PIPELINE])
    described = read_config(files.folder, PIPELINE)
    return read_pipeline(described, files.names, lambda part: _read_weights(files, part))


def _read_weights(
    files: ModelFiles, contents: Contents
) -> tuple[dict[str, Stored], dict[str, Header], str]:
    """Return the tensors, the header of each weight file, and the index or else the only file."""
    there = frozenset(files.names)
    index, single = next(
        (pair for pair in contents.weights if not there.isdisjoint(pair)), contents.weights[0]
    )
    files.fetch(there & {contents.config, index})
    weights: list[str] = []
    if index in there:
        weights = sorted(set(read_index(files.folder / index, contents.prefix).values()))
    elif single in there:
        weights = [single]
    elif contents.may_have_any_name(there):
        weights = checkpoint_files(there)
    files.check(contents, weights)
    headers = files.headers(weights)
    tensors = combined(headers, files.where)
    if index not in there:
        return tensors, headers, single
    check_index(files.folder / index, tensors, contents.prefix)
    return tensors, headers, index
