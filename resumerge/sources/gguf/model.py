"""Converts a model in GGUF to transformers' names, shapes, numbers and config."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from resumerge.errors import InputError, refuse
from resumerge.quantisation.gguf_blocks import EXTRA, decoded, needs_package
from resumerge.quantisation.scheme import USUAL_DTYPE, stated_dtype
from resumerge.sizes import some
from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.gguf.config import config_of
from resumerge.sources.gguf.families import FAMILIES, MIXTRAL, SHARED_GATE, Family
from resumerge.sources.gguf.metadata import Metadata
from resumerge.sources.gguf.rope import TENSORS
from resumerge.sources.gguf.tokenizer import FILES, reason_against
from resumerge.sources.left_out import LeftOut
from resumerge.sources.reader import SourceReader
from resumerge.sources.remote.files import list_companions
from resumerge.sources.types import (
    Description,
    FilesInWeights,
    GgufBlocks,
    Source,
    StoredForm,
    in_words,
    note_on_quantisation,
)
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Dequantised, Halved, Rounded, Stored, Tensor
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.parts import part_of

_NAME = re.compile(r"(?:blk\.(0|[1-9]\d{0,5})\.)?(\w+)\.(weight|bias)")


def from_gguf(source: Source) -> Source:
    """Return a model in GGUF with transformers' names, shapes, numbers and config.

    The changes by llama.cpp's converter are undone: the rows of queries and keys are put back in
    order, 1 is subtracted from gemma's norms, and packed experts are separated. Blocks of codes are
    decoded to float32 and merged in float32. A config.json beside the file is kept. A model in
    another format is returned unchanged.

    Raises:
        InputError: the architecture or a tensor is unknown, a tensor does not fit the architecture
            or is missing, or a package is not installed.
        Resumable: the network failed.
    """
    if source.described is None:
        return source
    reader = SourceReader({source.number: replace(source, streams=True)})
    try:
        return _Model(source, source.described).opened(reader.whole)
    finally:
        reader.close()


class _Model:
    """A model in GGUF while it is converted."""

    def __init__(self, source: Source, described: Description) -> None:
        self.source, self.coded = source, described.coded
        self.raw: dict[str, Stored] = {
            name: tensor for name, tensor in source.tensors.items() if isinstance(tensor, Stored)
        }
        self.metadata = Metadata(source.ref.text, described.values)
        self.family = self._family(described)

    def opened(self, read: Any) -> Source:
        """Return the converted model.

        Args:
            read: returns the bytes of a small tensor.
        """
        self._check_package()
        embedding = self._shape("token_embd.weight")
        hidden = self.metadata.needed("embedding_length")
        if "token_embd.weight" not in self.raw or embedding[1:] != (hidden,):
            raise self._unfit("token_embd.weight", f"a matrix of {hidden} columns", embedding)
        dtype = self._dtype()
        config = dict(self.source.config)
        if not config:
            config = config_of(self.metadata, self.family, self._shaped(), FLOATS[dtype], read)
        tensors = dict[str, Tensor]()
        for name, file_tensor in self.raw.items():
            if name not in TENSORS:
                for tensor in self._tensors(name, file_tensor):
                    tensors[tensor.name] = Rounded.of(tensor, dtype, takes_operand=True)
        self._check_complete(tensors)
        left_out = (
            LeftOut(self.raw[name], UnusedReason.COMPUTED) for name in TENSORS if name in self.raw
        )
        quantised_counts = in_words(blocks.scheme for blocks in self.coded.values())
        converted = replace(
            self.source,
            config=config,
            tensors=tensors,
            stored=StoredForm(self.source.tensors, quantised_counts),
            described=None,
            left_out=(*self.source.left_out, *left_out),
            contained=self._contained,
        )
        notes = (
            [note_on_quantisation(converted.ref.text, quantised_counts)] if quantised_counts else []
        )
        return replace(converted, notes=(*self.source.notes, *notes, *self._notes()))

    def _shaped(self) -> dict[str, Tensor]:
        """Return the tensors of the files, with the shapes of the decoded tensors."""
        shapes = {name: blocks.shape for name, blocks in self.coded.items()}
        return {n: replace(t, shape=shapes.get(n, t.shape)) for n, t in self.raw.items()}

    def _family(self, described: Description) -> Family:
        architecture = self.metadata.architecture
        if architecture == "llama" and self.metadata.size("expert_count"):
            return MIXTRAL
        kind = self.metadata.text("general.type")
        family = FAMILIES.get(architecture)
        if family is None or kind not in ("", "model"):
            raise refuse(
                "The architecture of a model in GGUF is not read",
                where=self.source.ref.text,
                expected=f"a model of {', '.join(FAMILIES)}",
                found=f"general.architecture {architecture[:60]!r}"
                + (f", general.type {kind[:40]!r}" if kind else ""),
                fix="name the model that it was made from",
            )
        return family

    def _check_package(self) -> None:
        for name, blocks in self.coded.items():
            if needs_package(blocks.scheme):
                raise refuse(
                    f"{blocks.scheme} is decoded by a package that is not installed",
                    where=f"{self.source.ref.text}: {name}",
                    expected="the package gguf",
                    found="no such package",
                    fix=EXTRA,
                )

    def _dtype(self) -> str:
        """Return the dtype of copied weights.

        For a quantised model, this is the dtype in config.json, or bfloat16. For any other model,
        it is the dtype of most elements.
        """
        if not self.coded:
            counts = Counter[str]()
            for tensor in self.raw.values():
                if tensor.dtype in FLOATS:
                    counts[tensor.dtype] += tensor.numel
            return counts.most_common(1)[0][0] if counts else USUAL_DTYPE
        return stated_dtype(self.source.config) or USUAL_DTYPE

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self.coded:
            return self.coded[name].shape
        return self.raw[name].shape if name in self.raw else ()

    def _unfit(self, name: str, expected: str, found: object) -> InputError:
        return refuse(
            "A tensor of a model in GGUF does not fit its architecture",
            where=f"{self.source.ref.text}: {name}",
            expected=expected,
            found=str(list(found) if isinstance(found, tuple) else found),
            fix="name the model that the file was made from, or download the file again",
        )

    def _tensors(self, name: str, stored: Stored) -> Iterator[Tensor]:
        """Yield the tensors of transformers that a tensor of the file stands for."""
        match = _NAME.fullmatch(name)
        layer, module, suffix = match.groups() if match else (None, name, "")
        table = self.family.top if layer is None else self.family.layer
        layer_count = self.metadata.needed("block_count")
        if module not in table or (layer is not None and int(layer) >= layer_count):
            raise refuse(
                "The architecture of a model in GGUF has no such tensor",
                where=f"{self.source.ref.text}: {name}",
                expected=f"a tensor of {self.family.model_type} with {layer_count} layers",
                found=f"{name[:100]} {list(self._shape(name))}",
                fix="name the model that the file was made from",
            )
        new_name = table[module] if layer is None else f"model.layers.{layer}.{table[module]}"
        if stored.dtype not in FLOATS and name not in self.coded:
            raise self._unfit(name, "floats", stored.dtype)
        if stored.numel == 0:
            raise self._unfit(name, "elements", self._shape(name))
        if "{}" in new_name:
            yield from self._experts(name, stored, f"{new_name}.{suffix}")
            return
        shape = self._shape(name)
        tensor = self._decoded(f"{new_name}.{suffix}", stored, self.coded.get(name), shape)
        if module == SHARED_GATE and len(shape) == 1:
            tensor = replace(tensor, shape=(1, *shape))
        if self.family.pairs and module in ("attn_q", "attn_k"):
            tensor = self._in_halves(name, module, tensor)
        if self.family.added and module.endswith("norm"):
            tensor = Dequantised.shifted(tensor, -self.family.added)
        yield tensor

    def _decoded(
        self, name: str, stored: Stored, coded: GgufBlocks | None, shape: tuple[int, ...]
    ) -> Tensor:
        if coded is None:
            return replace(stored, name=name, shape=shape)
        return decoded(name, shape, coded.scheme, stored, coded.elements, coded.nbytes)

    def _experts(self, name: str, stored: Stored, known: str) -> Iterator[Tensor]:
        """Yield the matrices of experts that are packed in one tensor.

        Args:
            name: the packed tensor's name in the file.
            stored: the packed tensor of the file: bytes (U8) if it has blocks of codes.
            known: transformers' name of a matrix, with ``{}`` for the expert's number.
        """
        expert_count, shape = self.metadata.needed("expert_count"), self._shape(name)
        if len(shape) != 3 or shape[0] != expert_count:
            raise self._unfit(name, f"matrices of {expert_count} experts", shape)
        for number in range(expert_count):
            expert_matrix = part_of(stored, stored.name, stored.shape[1:], number)
            assert isinstance(expert_matrix, Stored)
            yield self._decoded(
                known.format(number), expert_matrix, self.coded.get(name), shape[1:]
            )

    def _in_halves(self, name: str, module: str, tensor: Tensor) -> Tensor:
        """Return the weight of queries or keys with its rows in transformers' order."""
        key = "attention.head_count" if module == "attn_q" else "attention.head_count_kv"
        head_count = self.metadata.size(key) or self.metadata.needed("attention.head_count")
        rows = tensor.shape[0] if tensor.shape else 0
        if rows % (2 * head_count):
            raise self._unfit(
                name, f"rows for {head_count} heads, an even number each", tensor.shape
            )
        return Halved.of(tensor, rows // head_count)

    def _check_complete(self, tensors: dict[str, Tensor]) -> None:
        """Check that all layers have the same tensors, and that embedding and last norm exist."""
        layer_count = self.metadata.needed("block_count")
        layers = [set[str]() for _ in range(min(layer_count, len(self.raw) + 1))]
        for name in self.raw:
            number_text, _, tensor_name = name.removeprefix("blk.").partition(".")
            if name.startswith("blk.") and int(number_text) < len(layers):
                layers[int(number_text)].add(tensor_name)
        tensors_of_layers = set[str]().union(*layers)
        missing_top_names = {"output_norm.weight", "token_embd.weight"} - self.raw.keys()
        missing_tensors = [
            f"blk.{layer_number}.{tensor_name}"
            for layer_number, layer_tensors in enumerate(layers)
            for tensor_name in tensors_of_layers - layer_tensors
        ]
        if len(layers) < layer_count or not tensors_of_layers:
            missing_tensors.append(f"the tensors of layer {len(layers) - 1}")
        if missing_tensors := sorted([*missing_top_names, *missing_tensors]):
            raise refuse(
                "Tensors of a model in GGUF are missing",
                where=self.source.ref.text,
                expected=f"{layer_count} layers with the same tensors",
                found=f"no {some(missing_tensors)}",
                fix="download the file again; one of several files is named by the first",
            )

    @cached_property
    def _why_not_converted(self) -> str | None:
        """The reason why the file's tokenizer is not converted, in words.

        Empty if it is converted; None if another tokenizer is in the same folder.
        """
        if any(map(is_tokenizer_file, list_companions(self.source))):
            return None
        return reason_against(self.metadata)

    @property
    def _contained(self) -> FilesInWeights:
        if self._why_not_converted == "":
            return FilesInWeights(FILES, self._shape("token_embd.weight")[0])
        return FilesInWeights()

    def _notes(self) -> Iterator[str]:
        files = ["config.json"] if not self.source.config else []
        files += ["the tokenizer"] if self._contained.names else []
        if files:
            verb = "are" if len(files) > 1 else "is"
            yield (
                f"{self.source.ref.text}: {' and '.join(files)} {verb} made of the metadata of the "
                "GGUF file"
            )
        if why := self._why_not_converted:
            yield f"{self.source.ref.text}: the tokenizer in the GGUF file is not converted: {why}"
