"""An input model as data: pinned, with the place of every tensor in its files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from resumerge.quantisation.output import Layout
from resumerge.recipe.types import ModelRef
from resumerge.sources.left_out import LeftOut
from resumerge.tensors import Stored, Tensor, with_stored

REMOTE = frozenset({"hub", "bucket"})
"""The kinds of sources whose files are on a server: downloaded before reading, or streamed."""


@dataclass(frozen=True)
class FileStamp:
    """The facts that a filesystem records about a file. Every change of the file changes its stamp.

    A change that keeps the modification time also changes the stamp. Different stamps do not prove
    different content: a copy of a file has another stamp, and so has a file with a changed mode.

    Args:
        size: the size in bytes.
        mtime_ns: the time of the last change of the content; programs can set it.
        ctime_ns: the time of the last change of content, name or mode; only the kernel sets it.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> FileStamp:
        """Return the stamp of a file from the result of ``os.stat`` or ``os.fstat``."""
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    @classmethod
    def of_json(cls, value: Any) -> FileStamp | None:
        """Return the stamp that `as_json` wrote as this JSON; None for any other JSON."""
        is_stamp = isinstance(value, list) and len(value) == 4 and {*map(type, value)} == {int}
        return cls(*value) if is_stamp else None

    def differs(self, other: FileStamp | None, *, but_names: bool) -> bool:
        """Return whether a file has changed from one stamp to the other.

        Args:
            other: the other stamp; None differs from any.
            but_names: whether to ignore added and removed names (hard links). If true, the
                kernel's change times are not compared.
        """
        if other is not None and but_names:
            return self != replace(other, ctime_ns=self.ctime_ns)
        return self != other

    def as_json(self) -> list[int]:
        """Return the stamp as JSON, for the ledger."""
        return list(astuple(self))


@dataclass(frozen=True)
class SourceFile:
    """A file of a model, with the facts that pin its content.

    Args:
        size: the size in bytes.
        identity: the facts that identify the content, as JSON: ``etag`` for a remote file,
            ``header`` (the xxh3-128 of its header) for a local file.
        present: whether the complete file is on this disk.
        stamp: the stamp of a local file at the time when its header was read, valid on this
            machine only; None for a remote file.
        first: the bytes of a safetensors file before the first tensor; empty for other formats.
    """

    name: str
    size: int
    identity: Mapping[str, Any]
    present: bool = True
    stamp: FileStamp | None = None
    first: bytes = field(default=b"", repr=False, compare=False)


class GgufBlocks(NamedTuple):
    """The encoding of a tensor that a GGUF file stores as blocks of codes, in a `Stored` of U8.

    Args:
        scheme: the name of the quantisation.
        elements: the number of elements of a block.
        nbytes: the size of a block in bytes.
        shape: the shape of the decoded tensor.
    """

    scheme: str
    elements: int
    nbytes: int
    shape: tuple[int, ...]


class StoredWeight(NamedTuple):
    """The tensors that a quantised weight is stored as.

    Args:
        parts: the names of the tensors in its file: codes, scales, and their descriptions.
        kind: the name of the scheme in messages.
        written: the layout of a changed weight in the output; None if it cannot be written in its
            scheme.
    """

    parts: tuple[str, ...]
    kind: str
    written: Layout | None


class FilesInWeights(NamedTuple):
    """The companions that are made from the metadata of a weight file when they are read.

    Args:
        names: the names of these companions; empty for most models.
        tokens: the largest number of tokens that they may describe: the rows of the embedding.
    """

    names: tuple[str, ...] = ()
    tokens: int = 0


NO_FILES = FilesInWeights()


class Description(NamedTuple):
    """The metadata of a model in GGUF, under llama.cpp's names.

    Args:
        values: the metadata by key: numbers, texts, booleans and short arrays; None for a long
            array.
        coded: the encoding of each tensor that is stored in blocks, by the tensor's name.
    """

    values: Mapping[str, Any]
    coded: Mapping[str, GgufBlocks]


@dataclass(frozen=True)
class StoredForm:
    """The content of the files of a quantised or GGUF model, whose tensors are computed from it.

    Args:
        tensors: the tensors of the files, by name.
        quantised: the number of weights in each scheme, as `in_words` returns it; empty if no
            weight is quantised.
        stated: the quantisation that config.json states; `Source.config` leaves it out.
        weights: the stored form of each quantised weight, by its plain name; empty for GGUF.
    """

    tensors: Mapping[str, Tensor]
    quantised: str
    stated: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, StoredWeight] = field(default_factory=dict)


@dataclass(frozen=True)
class SentenceModules:
    """The modules of a model of sentence-transformers.

    Args:
        types: the class name of each module, in the order of the modules.
        configs: the config.json of each module except the transformer, by the module's folder.
        stems: the `weights_stem` of each module that has weights, by the module's folder.
    """

    types: tuple[str, ...]
    configs: Mapping[str, Mapping[str, Any]]
    stems: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One input model, pinned.

    A source with an adapter has the `single`, `components` and `modules` of its `base`. The other
    facts from a model's files (`contained`, `described`, `stored`) are fields of its `carrier`.

    Args:
        ref: the model as the recipe names it.
        kind: ``local``, ``hub`` or ``bucket``; ``lora`` for a model with an adapter; ``stage`` for
            the result of another merge, with or without an adapter. A stage's tensors are computed.
        folder: the folder of its files, which need not be downloaded yet; for a ``lora``, the
            base's folder; for a ``stage``, a temporary folder with its companions.
        revision: the commit of a Hub repo; for a model in a bucket, a digest of the ETags of its
            weight files; None for a local folder; with an adapter, the revisions of base and
            adapter joined by ``+``, or None if neither has one.
        config: config.json, parsed; empty if the model has none.
        tensors: the tensors, by name.
        files: the weight files, by name relative to `folder`; for a ``lora``, ``base/…`` and
            ``adapter/…``.
        companions: the files of a remote model beside the weights, by name relative to `folder`;
            empty for a local model.
        base: the model without its adapter; None for a source without an adapter.
        adapter: the adapter without the model, with adapter_config.json as its config; None for a
            source without an adapter.
        notes: sentences for the user, one for each line.
        components: the `weights_stem` of each component of a diffusers pipeline, by the component's
            name; an empty stem for a component without weights.
        modules: the modules of a model of sentence-transformers; None for other models.
        single: whether the reference names one weight file. The other files in `folder` then do not
            belong to the model.
        number: the model's number in a plan.
        streams: whether remote files that are not on this disk are read by ranges instead of being
            downloaded.
        linked: whether shards of the output may be hard links to its files.
        left_out: the tensors of its parts from which no tensor of the model is computed.
        stored: the content of the files of a quantised or GGUF model; None for other models, whose
            `tensors` are the tensors of the files.
        described: the metadata of a model in GGUF, until its tensors get transformers' names; None
            for other models.
        is_adapter: whether it is an adapter without a model; `config` is then its
            adapter_config.json.
        led_to_by_file: whether its first file identifies it in a folder that may hold several
            models: true for a model in GGUF.
        contained: the companions in its first weight file: the tokenizer of a model in GGUF.
    """

    ref: ModelRef
    kind: str
    folder: Path
    revision: str | None
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    files: Mapping[str, SourceFile] = field(default_factory=dict)
    companions: Mapping[str, SourceFile] = field(default_factory=dict)
    base: Source | None = None
    adapter: Source | None = None
    single: bool = False
    notes: tuple[str, ...] = ()
    components: Mapping[str, str] = field(default_factory=dict)
    modules: SentenceModules | None = None
    number: int = 0
    streams: bool = False
    linked: bool = False
    left_out: tuple[LeftOut, ...] = ()
    stored: StoredForm | None = None
    described: Description | None = None
    is_adapter: bool = False
    led_to_by_file: bool = False
    contained: FilesInWeights = NO_FILES

    @property
    def is_remote(self) -> bool:
        """Whether its files are on a server; False for a source with an adapter."""
        return self.kind in REMOTE

    @property
    def carrier(self) -> Source:
        """The base of a source with an adapter; otherwise the source itself."""
        return self.base or self

    @property
    def parts(self) -> dict[str, Source]:
        """The base and the adapter, or else the source itself, by the prefix in `files`."""
        if self.base is None or self.adapter is None:
            return {"": self}
        return {"base/": self.base, "adapter/": self.adapter}

    def numbered(self, number: int) -> Source:
        """Return the source with a number in a plan, which its stored tensors also get."""

        def place(stored: Stored) -> Stored:
            return stored if stored.source == number else replace(stored, source=number)

        tensors = {name: with_stored(tensor, place) for name, tensor in self.tensors.items()}
        left_out = (
            replace(entry, tensor=with_stored(entry.tensor, place)) for entry in self.left_out
        )
        return replace(self, tensors=tensors, number=number, left_out=tuple(left_out))

    def stored_tensors(self) -> dict[str, Stored]:
        """Return the stored tensors of a quantised or GGUF model, by their names in its files.

        For a model with an adapter, return the base's stored tensors. For any other model, return
        an empty dictionary.
        """
        file_prefix, model = ("base/", self.base) if self.base else ("", self)
        tensors_in_files = model.stored.tensors if model.stored else {}
        stored_in_files = {
            name: tensor for name, tensor in tensors_in_files.items() if isinstance(tensor, Stored)
        }
        if not (file_prefix or self.number):
            return stored_in_files
        return {
            name: replace(tensor, source=self.number, file=file_prefix + tensor.file)
            for name, tensor in stored_in_files.items()
        }

    def part_of(self, file: str) -> tuple[Source, str]:
        """Return the part that a file of `files` belongs to, and the file's name in this part."""
        return next(
            (part, file.removeprefix(prefix))
            for prefix, part in self.parts.items()
            if file.startswith(prefix)
        )

    def is_streamed(self, file: str) -> bool:
        """Return whether a weight file is read by ranges from its server, and never stored here."""
        if not self.streams or self.files[file].present:
            return False
        return self.part_of(file)[0].is_remote

    def path(self, file: str) -> Path:
        """Return the path of a file of `files`, which need not be downloaded yet."""
        part, name = self.part_of(file)
        return part.folder / name

    def identity(self) -> dict[str, Any]:
        """Return the facts that pin the content, as JSON: part of the run's fingerprint.

        If the identity states ``single``, the first name of `files` identifies the model.
        """
        stored_form = self.carrier.stored
        if self.base and stored_form and not stored_form.weights:
            stored_form = None  # GGUF: the kinds of the tensors and the file's header pin it
        return {
            "model": self.ref.text,
            "kind": self.kind,
            "revision": self.revision,
            **({"single": True} if self.single or self.led_to_by_file else {}),
            "config": config_digest(self.config),
            **({"quantised": config_digest(stored_form.stated)} if stored_form else {}),
            "files": {
                name: {"size": f.size, **f.identity} for name, f in sorted(self.files.items())
            },
            **({"adapter_config": dict(self.adapter.config)} if self.adapter else {}),
        }


def note_on_quantisation(model: str, quantised: str) -> str:
    """Return the note for the user about a quantised model.

    Args:
        model: the model as the recipe names it.
        quantised: the number of weights in each scheme, as `in_words` returns it; not empty.
    """
    return (
        f"{model}: its weights are computed from quantised ones ({quantised}); what quantisation "
        "took from them is lost"
    )


def in_words(kinds: Iterable[str]) -> str:
    """Return the number of weights in each scheme, in words: ``14 in NVFP4, 2 in MXFP4``.

    Args:
        kinds: the scheme of each weight.
    """
    return ", ".join(f"{count} in {kind}" for kind, count in Counter(kinds).most_common())


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the digest that pins a config.json; a missing file counts as an empty config."""
    return xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())


def numbered(sources: Mapping[ModelRef, Source]) -> dict[ModelRef, Source]:
    """Return sources with numbers for a plan: their positions, counted from 0."""
    return {ref: source.numbered(n) for n, (ref, source) in enumerate(sources.items())}


def left_out_tensors(sources: Iterable[Source]) -> Iterator[LeftOut]:
    """Yield the tensors of sources' parts from which no tensor of a source is computed."""
    for source in sources:
        yield from source.left_out
