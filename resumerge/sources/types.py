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
    """The facts that a filesystem has on a file, which differ after any change.

    A change that keeps the modification time gives another stamp as well. Files with different
    stamps may have the same content: a copy, or a changed mode, has another stamp.

    Args:
        size: the size in bytes.
        mtime_ns: the time of the last change of the content, which programs may set as they like.
        ctime_ns: the time of the last change of content, name or mode, which the kernel sets.
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
        """Return the stamp with the JSON that `as_json` returned; None for other JSON."""
        whole = isinstance(value, list) and len(value) == 4 and {*map(type, value)} == {int}
        return cls(*value) if whole else None

    def differs(self, other: FileStamp | None, *, but_names: bool) -> bool:
        """Return whether a file has changed from one stamp to the other.

        Args:
            other: the other stamp; None differs from any.
            but_names: whether to ignore added and removed names (hard links): then the kernel's
                change times are not compared.
        """
        if other is not None and but_names:
            return self != replace(other, ctime_ns=self.ctime_ns)
        return self != other

    def as_json(self) -> list[int]:
        """Return the stamp as JSON, for the ledger."""
        return list(astuple(self))


@dataclass(frozen=True)
class SourceFile:
    """A weight file, with the facts that pin its content.

    Args:
        size: the size in bytes.
        identity: JSON facts of the content: ``etag`` of remote files; ``header`` (xxh3-128 of the
            file's header) of local files.
        present: whether the complete file is on this disk.
        stamp: a local file's stamp when its header was read, which belongs to this machine.
        first: a safetensors file's bytes before the first tensor; empty for other formats.
    """

    name: str
    size: int
    identity: Mapping[str, Any]
    present: bool = True
    stamp: FileStamp | None = None
    first: bytes = field(default=b"", repr=False, compare=False)


class GgufBlocks(NamedTuple):
    """The blocks of codes that a tensor is stored as, whose bytes are a `Stored` of U8.

    Args:
        scheme: the name of the quantisation.
        elements: elements of a block.
        nbytes: bytes of a block.
        shape: the shape of the tensor that the blocks stand for.
    """

    scheme: str
    elements: int
    nbytes: int
    shape: tuple[int, ...]


class StoredWeight(NamedTuple):
    """The tensors that a quantised weight is stored as.

    Args:
        parts: the names of the tensors in its file: codes, scales, and their descriptions.
        kind: the scheme in words.
        written: the tensors that a changed weight is written as; None if it cannot be written.
    """

    parts: tuple[str, ...]
    kind: str
    written: Layout | None


class Contained(NamedTuple):
    """The companion files that a weight file contains, which are made when they are read.

    Args:
        names: the names of the files.
        tokens: the largest number of tokens that they describe.
    """

    names: tuple[str, ...] = ()
    tokens: int = 0


NOTHING_CONTAINED = Contained()


class Description(NamedTuple):
    """The description of a model in its GGUF files, in their own terms.

    Args:
        values: numbers and texts about the model, by name; None for long arrays.
        coded: the tensors that are stored in blocks, by name.
    """

    values: Mapping[str, Any]
    coded: Mapping[str, GgufBlocks]


@dataclass(frozen=True)
class StoredForm:
    """What the files of a model hold, where its tensors are computed from it: quantised, or GGUF.

    Args:
        tensors: the tensors of the files, by name.
        quantised: the number of quantised weights, by scheme, in words; empty for none.
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
        types: the name of each module's class, in their order.
        configs: the config.json of each module but the transformer, by its folder.
        stems: the beginning of the names of weight files, by the folder of a module with weights.
    """

    types: tuple[str, ...]
    configs: Mapping[str, Mapping[str, Any]]
    stems: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One input model, pinned.

    A ``lora`` has the `single`, `components` and `modules` of its `base`. What else the files of a
    model say (`contained`, `described`, `stored`) is asked of `carrier`.

    Args:
        ref: the model as the recipe names it.
        kind: ``local``, ``hub`` or ``bucket``; ``lora`` for a model with an adapter; ``stage`` for
            the result of another merge, with an adapter or without, whose tensors are computed.
        folder: the folder of its files, before and after the download; for a ``lora``, the model's
            folder; for a ``stage``, the folder of the files that it would have beside its weights.
        revision: the commit of a Hub repo; for a model in a bucket, a digest of the ETags of its
            weight files; None for a local folder; for a ``lora``, both joined by ``+``.
        config: config.json, parsed; empty if there is none.
        tensors: the tensors, by name.
        files: the weight files, by name relative to `folder`; for a ``lora``, ``base/…`` and
            ``adapter/…``.
        companions: the files of a remote model beside the weights, by name relative to `folder`.
        base: the model of a ``lora``, without its adapter.
        adapter: the adapter of a ``lora`` alone: its config is adapter_config.json.
        notes: sentences for the user, a line each.
        components: the beginning of the names of weight files, by component of a diffusers
            pipeline; empty for a component without weights.
        modules: the modules of a model of sentence-transformers; None for another model.
        single: whether the reference names one weight file: other files in `folder` are not the
            model's.
        number: the model's number in a plan.
        streams: whether its remote files that are not on this disk are read by ranges, and not
            downloaded.
        linked: whether files of the output may become other names of its files (hard links).
        left_out: the tensors of its parts from which no tensor of the model is computed.
        stored: what the files of a quantised model, or one in GGUF, hold; None for other models,
            whose `tensors` are those of the files.
        described: the description in GGUF files, until tensors get transformers' names; None for
            other files.
        is_adapter: whether it is an adapter alone: `config` is its adapter_config.json.
        led_to_by_file: whether its first file identifies it, even in a folder with several models:
            a model in GGUF.
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
    contained: Contained = NOTHING_CONTAINED

    @property
    def is_remote(self) -> bool:
        """Whether its files are on a server; False for a source with parts."""
        return self.kind in REMOTE

    @property
    def carrier(self) -> Source:
        """The model whose files an adapter changes; without an adapter, the source itself."""
        return self.base or self

    @property
    def parts(self) -> dict[str, Source]:
        """The folders and repos that a source consists of, by the prefix of their files' names."""
        if self.base is None or self.adapter is None:
            return {"": self}
        return {"base/": self.base, "adapter/": self.adapter}

    def numbered(self, number: int) -> Source:
        """Return the source with its number in a plan, which its stored tensors state."""

        def place(stored: Stored) -> Stored:
            return stored if stored.source == number else replace(stored, source=number)

        tensors = {name: with_stored(tensor, place) for name, tensor in self.tensors.items()}
        left_out = (replace(each, tensor=with_stored(each.tensor, place)) for each in self.left_out)
        return replace(self, tensors=tensors, number=number, left_out=tuple(left_out))

    def stored_tensors(self) -> dict[str, Stored]:
        """Return the tensors of a quantised model as its files have them, by name.

        For a model with an adapter they are the model's tensors. Empty for a model that is not
        quantised.
        """
        prefix, model = ("base/", self.base) if self.base else ("", self)
        files = model.stored.tensors if model.stored else {}
        found = {name: tensor for name, tensor in files.items() if isinstance(tensor, Stored)}
        if not (prefix or self.number):
            return found
        return {
            name: replace(tensor, source=self.number, file=prefix + tensor.file)
            for name, tensor in found.items()
        }

    def part_of(self, file: str) -> tuple[Source, str]:
        """Return the part that a file of `files` belongs to, and the file's name in it."""
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
        """Return the path of a file of `files`: where it is, or will be after the download."""
        part, name = self.part_of(file)
        return part.folder / name

    def identity(self) -> dict[str, Any]:
        """Return the facts that pin the content, as JSON: part of the run's fingerprint.

        If `single` is true, the first name of `files` leads to the model.
        """
        stored = self.carrier.stored
        if self.base and stored and not stored.weights:
            stored = None  # GGUF: the tensors' kinds say it, and the file's header
        return {
            "model": self.ref.text,
            "kind": self.kind,
            "revision": self.revision,
            **({"single": True} if self.single or self.led_to_by_file else {}),
            "config": config_digest(self.config),
            **({"quantised": config_digest(stored.stated)} if stored else {}),
            "files": {
                name: {"size": f.size, **f.identity} for name, f in sorted(self.files.items())
            },
            **({"adapter_config": dict(self.adapter.config)} if self.adapter else {}),
        }


def note_on_quantisation(model: str, quantised: str) -> str:
    """Return a sentence on a quantised model.

    Args:
        model: the model as the recipe names it.
        quantised: as `StoredForm.quantised`.
    """
    return (
        f"{model}: its weights are computed from quantised ones ({quantised}); what quantisation "
        "took from them is lost"
    )


def in_words(kinds: Iterable[str]) -> str:
    """Return how many weights are quantised in each way, in words: ``14 in NVFP4, 2 in MXFP4``.

    Args:
        kinds: the quantisation of each weight.
    """
    return ", ".join(f"{count} in {kind}" for kind, count in Counter(kinds).most_common())


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the digest that pins a config.json; a missing one counts as empty."""
    return xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())


def numbered(sources: Mapping[ModelRef, Source]) -> dict[ModelRef, Source]:
    """Return sources with their numbers in a plan, in their order from 0."""
    return {ref: source.numbered(n) for n, (ref, source) in enumerate(sources.items())}


def left_out_of(sources: Iterable[Source]) -> Iterator[LeftOut]:
    """Yield the tensors of sources' parts from which no tensor of a source is computed."""
    for source in sources:
        yield from source.left_out
