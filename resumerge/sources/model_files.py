"""The steps that open a model or an adapter from its files, local or remote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from resumerge.errors import refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.sizes import some
from resumerge.sources.adapter_programs.diffusers import IN_HEADER
from resumerge.sources.checkpoint_files import (
    check_shards,
    checkpoint_files,
    checkpoint_tensors,
    shards_with,
    weights_in,
)
from resumerge.sources.formats.distributed import LARGEST_METADATA, METADATA, read_metadata
from resumerge.sources.formats.gguf import SUFFIX
from resumerge.sources.formats.weight_format import Header, WeightFormat, damaged
from resumerge.sources.index import (
    ADAPTER,
    INDEX_SUFFIX,
    MODEL,
    Contents,
    Weights,
    check_index,
    combined,
    is_index,
    read_config,
    read_index,
)
from resumerge.sources.pipelines import PIPELINE, Pipeline, is_pipeline, read_pipeline
from resumerge.sources.sentence_modules import MODULES, read_modules
from resumerge.sources.types import Description, SentenceModules, Source
from resumerge.tensors import Tensor

PROJECTOR = "mmproj"
"""The prefix of the names of GGUF files that hold a vision projector, not the model."""

NAMED_WEIGHTS = "transformers_weights"
"""The key of config.json that names a weight file or index to load in place of the usual one."""


@dataclass(frozen=True)
class Opened:
    """The facts that were read from a model's files, without its weights.

    Args:
        tensors: the tensors, by name.
        headers: the headers of the weight files, by name.
        config: the parsed config.json or adapter_config.json, or the settings in an adapter's
            header; empty without any.
        notes: sentences for the user.
        components: the `weights_stem` of each component of a pipeline; empty for other models.
        modules: the modules of a model of sentence-transformers; None for other models.
        described: the metadata of a model in GGUF; None for other formats.
    """

    tensors: Mapping[str, Tensor]
    headers: Mapping[str, Header]
    config: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    components: Mapping[str, str] = field(default_factory=dict)
    modules: SentenceModules | None = None
    described: Description | None = None


class ModelFiles(ABC):
    """The files of a model or an adapter in one place: a folder, or a version on a server.

    Attributes:
        model: the model's name in notes.
        where: the place in messages about several files.
        folder: the folder of the files, which need not be downloaded yet.
        single: the name of the weight file, if the recipe names one; empty for a whole model.
    """

    model: str
    where: str
    folder: Path
    single: str

    @property
    def is_one_file(self) -> bool:
        """Whether the whole model is one weight file that the recipe names; False for GGUF."""
        return bool(self.single) and not self.single.endswith(SUFFIX)

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of all files relative to `folder`, also those of components and modules."""

    @abstractmethod
    def fetch(self, names: Iterable[str]) -> None:
        """Put small files into `folder` if they are missing in it.

        Raises:
            InputError: the server refuses, or has no such file.
            Resumable: the network failed.
        """

    @abstractmethod
    def check(self, contents: Contents, weights: list[str], index: str) -> None:
        """Check that there are weight files, and that all files in the index exist.

        Args:
            contents: the kind of weights.
            weights: the names of the weight files that will be read; empty if none was found.
            index: the index that names them; empty without one.

        Raises:
            InputError: files are missing; the message names the existing ones.
        """

    @abstractmethod
    def headers(self, weights: list[str], known: WeightFormat | None = None) -> dict[str, Header]:
        """Read and validate the headers of weight files.

        Args:
            weights: the names of the weight files, in the order of the result.
            known: the format of all files; None to choose it by each file's name.

        Raises:
            InputError: a file is missing or damaged.
            Resumable: the network failed.
        """

    @abstractmethod
    def source(self, opened: Opened) -> Source:
        """Return the source that consists of these files, each of them pinned."""


def open_files(files: ModelFiles, contents: Contents | None) -> Source:
    """Read the config, index and headers of a model or an adapter, but not its weights.

    Args:
        files: the files, on this machine or on a server.
        contents: the expected kind, model or adapter. None opens an adapter if the files are an
            adapter's without a model's, and a model otherwise.

    Raises:
        InputError: there are no weights, or a file is missing or damaged.
        Resumable: the network failed.
    """
    contents = contents or (ADAPTER if _are_of_an_adapter(files) else MODEL)
    return replace(_opened(files, contents), is_adapter=contents is ADAPTER)


def _are_of_an_adapter(files: ModelFiles) -> bool:
    """Return whether the files are those of an adapter alone, without a model's weights."""
    file_names = frozenset(files.names)
    return (
        not files.single and ADAPTER.config in file_names and file_names.isdisjoint(MODEL.weights)
    )


def _opened(files: ModelFiles, contents: Contents) -> Source:
    """Return the model or the adapter that these files make up."""
    if gguf := _gguf_files(files, contents):
        return _open_gguf(files, gguf, contents)
    if _is_distributed(files, contents):
        return _open_distributed(files)
    if files.single:
        headers = files.headers([files.single])
        stored_tensors, _ = combined(headers, files.where, "")
        tensors, notes = checkpoint_tensors(files.model, headers, stored_tensors, {})
        return files.source(Opened(tensors, headers, _in_header(contents, headers), notes))
    if is_pipeline(contents, files.names):
        pipeline = _read_pipeline(files)
        _, notes = checkpoint_tensors(files.model, pipeline.headers, pipeline.tensors, {})
        notes = (*pipeline.notes, *notes)
        return files.source(
            Opened(pipeline.tensors, pipeline.headers, notes=notes, components=pipeline.stems)
        )
    weights = _read_weights(files, contents)
    config = read_config(files.folder, contents.config)
    config = config or _in_header(contents, weights.headers)
    config.pop(NAMED_WEIGHTS, None)  # the output's weights have the usual names
    tensors, notes = checkpoint_tensors(files.model, weights.headers, weights.tensors, config)
    notes = (*weights.notes, *notes)
    if contents is not MODEL or not config or MODULES not in files.names:
        return files.source(Opened(tensors, weights.headers, config, notes))
    modules, module_tensors, headers = read_modules(
        files.folder, files.names, files.fetch, lambda part: _read_weights(files, part)
    )
    return files.source(
        Opened(
            {**tensors, **module_tensors},
            {**weights.headers, **headers},
            config,
            notes,
            modules=modules,
        )
    )


def _is_distributed(files: ModelFiles, contents: Contents) -> bool:
    """Return whether a folder holds a distributed checkpoint and no other weights of a model."""
    if contents is not MODEL or files.single or METADATA not in files.names:
        return False
    return frozenset(files.names).isdisjoint(contents.weights)


def _open_distributed(files: ModelFiles) -> Source:
    """Open a folder that torch.distributed.checkpoint wrote.

    Raises:
        InputError: files are missing or damaged, or hold no model.
    """
    files.fetch({METADATA, MODEL.config} & frozenset(files.names))
    metadata_path = f"{files.where}/{METADATA}"
    try:
        distributed = read_metadata(
            read_foreign(files.folder / METADATA, LARGEST_METADATA), metadata_path
        )
    except UnfitFile as error:
        raise damaged(
            "metadata", metadata_path, "a file of torch.distributed", str(error)
        ) from None
    files.check(MODEL, distributed.files, METADATA)
    headers = files.headers(distributed.files, distributed)
    chunks = {name: chunk for header in headers.values() for name, chunk in header.tensors.items()}
    config = read_config(files.folder)
    header_of_metadata = {METADATA: Header({}, distributed.digest, distributed.left_out)}
    tensors, notes = checkpoint_tensors(
        files.model, header_of_metadata, distributed.joined(chunks), config
    )
    if unread_weights := weights_in(files.names):
        notes = (f"{files.model}: read from {METADATA}; not read: {some(unread_weights)}", *notes)
    return files.source(Opened(tensors, headers, config, notes))


def _gguf_files(files: ModelFiles, contents: Contents) -> list[str]:
    """Return the GGUF files of a model; empty if it is in another format.

    Raises:
        InputError: a folder has several models, or shards of the model are missing.
    """
    weights = weights_in(files.names)
    if files.single:
        if not files.single.endswith(SUFFIX):
            return []
        model_files = shards_with(files.single, weights)
    else:
        if contents is not MODEL or is_pipeline(contents, files.names):
            return []
        if not all(name.endswith(SUFFIX) for name in weights):
            return []
        models = {tuple(shards_with(n, weights)) for n in weights if not n.startswith(PROJECTOR)}
        if len(models) > 1:
            raise refuse(
                "The folder has several models in GGUF",
                where=files.where,
                expected="one, or the name of its file",
                found=some(weights),
                fix=f"name the file: {files.model}/{weights[0]}",
            )
        model_files = [*next(iter(models), ())]
    check_shards(model_files, files.where)
    return model_files


def _open_gguf(files: ModelFiles, names: list[str], contents: Contents) -> Source:
    """Open a model in GGUF. A config.json in the same folder is taken as its config.

    Raises:
        InputError: files are missing or damaged, or an adapter is expected.
    """
    if contents is not MODEL:
        raise refuse(
            "Adapters are not read from GGUF",
            where=files.where,
            expected=contents.expected,
            found=some(names),
            fix="name the adapter that it was converted from",
        )
    headers = files.headers(names)
    tensors, _ = combined(headers, files.where, "")
    descriptions = [header.described for header in headers.values() if header.described]
    coded_blocks = {
        name: blocks
        for file_description in descriptions
        for name, blocks in file_description.coded.items()
    }
    file_counts = {
        name: file_description.values.get("split.count", 1)
        for name, file_description in zip(headers, descriptions)
    }
    for name, count in file_counts.items():
        if count != len(names):
            raise refuse(
                "Weight files are missing",
                where=f"{files.where}/{name}",
                expected=f"{count} files of one model, with numbers in their names",
                found=some(names),
                fix="copy or download the missing files, under the names that they were made with",
            )
    config = {}
    if MODEL.config in files.names:
        files.fetch([MODEL.config])
        config = read_config(files.folder)
    unread_weights = sorted({*weights_in(files.names)} - {*names})
    notes = [f"{files.model}: read from {some(names)}; not read: {some(unread_weights)}"] * bool(
        unread_weights
    )
    description = Description(descriptions[0].values, coded_blocks)
    return files.source(Opened(tensors, headers, config, tuple(notes), described=description))


def _in_header(contents: Contents, headers: Mapping[str, Header]) -> dict[str, Any]:
    """Return the settings in the header of an adapter's weight file; empty for a model."""
    options = [text for header in headers.values() if (text := header.metadata.get(IN_HEADER))]
    return {IN_HEADER: options[0]} if options and contents is ADAPTER else {}


def _read_pipeline(files: ModelFiles) -> Pipeline:
    files.fetch([PIPELINE])
    model_index = read_config(files.folder, PIPELINE)
    return read_pipeline(model_index, files.names, lambda part: _read_weights(files, part))


def _read_weights(files: ModelFiles, contents: Contents) -> Weights:
    file_names = frozenset(files.names)
    files.fetch(file_names & {contents.config})
    chosen_file = _named_weights(files, contents)
    chosen_file = chosen_file or next((name for name in contents.weights if name in file_names), "")
    index = chosen_file if is_index(chosen_file) else ""
    files.fetch(file_names & {index})
    weights = [chosen_file] if chosen_file else []
    files_by_tensor: dict[str, str] = {}
    if index and index in file_names:
        files_by_tensor = read_index(files.folder / index, contents.prefix)
        weights = sorted(set(files_by_tensor.values()))
    elif not chosen_file and contents.may_have_any_name(file_names):
        weights = checkpoint_files(file_names)
        check_shards(weights, files.where)
    files.check(contents, weights, index)
    headers = files.headers(weights)
    tensors, misplacement_lines = combined(headers, files.where, index)
    if index:
        misplacement_lines += check_index(files.folder / index, files_by_tensor, tensors, headers)
    return Weights(
        tensors,
        headers,
        chosen_file,
        _notes(files, contents, chosen_file, weights, misplacement_lines),
    )


def _named_weights(files: ModelFiles, contents: Contents) -> str:
    """Return the weight file or index that the config names for transformers; empty if none.

    Raises:
        InputError: the config names a file that the folder lacks or that cannot be read.
    """
    if contents is not MODEL:
        return ""
    weights_name = read_config(files.folder, contents.config).get(NAMED_WEIGHTS)
    if weights_name is None:
        return ""
    endings = (".safetensors", f".safetensors{INDEX_SUFFIX}")
    if (
        isinstance(weights_name, str)
        and weights_name in files.names
        and "/" not in weights_name
        and weights_name.endswith(endings)
    ):
        return weights_name
    raise refuse(
        "The config names weights that cannot be read",
        where=f"{files.where}/{contents.config}",
        expected=f"{NAMED_WEIGHTS}: a safetensors file of this folder, or an index",
        found=f"{NAMED_WEIGHTS}: {str(weights_name)[:60]!r}",
        fix=f"copy or download this file, or remove {NAMED_WEIGHTS} from the config",
    )


def _notes(
    files: ModelFiles, contents: Contents, chosen: str, weights: list[str], moved: list[str]
) -> tuple[str, ...]:
    """Return notes on weights that are not read, and on tensors that are not in the indexed file.

    Args:
        files: the files of the model, for its name and for the names of those that are not read.
        contents: the kind of weights.
        chosen: the weight file or index that is read; empty if files may have any name.
        weights: the weight files that are read.
        moved: a line for each tensor that is in another file than the index says.
    """
    file_names = frozenset(files.names)
    indexes = {name for name in contents.weights if is_index(name)}
    unread_weights = {*weights_in(file_names, contents.prefix), *(indexes & file_names)} - {
        chosen,
        *weights,
    }
    notes = []
    reading_note = f"{files.model}: read from {chosen or some(weights)}"
    if contents.is_variant(chosen):
        notes.append(f"{reading_note}, for there are no weights in full precision")
    if unread_weights:
        notes.append(f"{reading_note}; not read: {some(sorted(unread_weights))}")
    if moved:
        notes.append(
            f"{files.model}: weight files and index disagree, and are read as transformers "
            f"reads them: {some(moved, '; ')}"
        )
    return tuple(notes)
