"""The plan: every output tensor with its final place and the expression that computes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice

from resumerge.accounts import Accounts
from resumerge.experts.upcycling import MadeMixture
from resumerge.extraction import MadeAdapter
from resumerge.kernels.blocks import BlockRun
from resumerge.layout import Layers
from resumerge.output_path import GGUF
from resumerge.planning.quantised.quantised_output import QuantisedOutput
from resumerge.recipe import Recipe
from resumerge.sizes import counted
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import REMOTE, Source
from resumerge.tensors import Sliced, Stacked, Stored, Tensor, stored_in
from resumerge.tensors.dtypes import nbytes
from resumerge.tokenizers.output_vocabulary import OutputVocabulary


class Unshared(Enum):
    """The treatment of tensors that only some models have, if models are matched by name alone."""

    REFUSED = ""
    UNION = "union"
    INTERSECTION = "intersection"


NUMERICS = 5
"""The version of the arithmetic, a part of the fingerprint. Raise it if an output's bits change."""

SourceFileKey = tuple[int, str]
"""A weight file: the number of its source in the plan, and its name in the source."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """An output tensor, or several tensors that are computed as one. The ledger journals units.

    Args:
        number: the unit's place in the plan.
        dtype: the elements' type, by safetensors' name.
        shard: number of the shard that contains the unit.
        offset: offset of its first byte in the shard's file.
        nbytes: length of the unit's data in the shard's file, in bytes.
        block_elements: number of elements in a block: `BLOCK_ELEMENTS`, or as many whole rows as
            fit if rows must not be split.
        expression: the tensor that computes the unit's elements.
        tensors: shapes of the output tensors that begin in the unit, by name, in the order of their
            bytes. If the unit holds only the first part of a tensor, the next units hold the other
            parts, and their `tensors` are empty. Also empty if only the unit's place is known.
        dtypes: the dtypes of `tensors`, by name, if the unit holds the bytes (U8) of tensors of
            several dtypes; otherwise empty.
    """

    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    nbytes: int
    block_elements: int
    expression: Tensor
    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def blocks(self) -> int:
        """The number of blocks; an empty tensor has one empty block."""
        return max(1, -(-self.numel // self.block_elements))

    def block_span(self, index: int) -> tuple[int, int]:
        """Return (offset in the shard's file, length) of a block, in bytes."""
        return self.span(range(index, index + 1))

    def span(self, indices: range) -> tuple[int, int]:
        """Return (offset in the shard's file, length) of consecutive blocks, in bytes."""
        first_byte = nbytes(self.dtype, indices.start * self.block_elements)
        stop_byte = nbytes(self.dtype, min(indices.stop * self.block_elements, self.numel))
        return self.offset + first_byte, stop_byte - first_byte

    def bytes_of(self, indices: range) -> int:
        """Return the length of consecutive blocks, in bytes."""
        return self.span(indices)[1]

    @property
    def is_copied(self) -> bool:
        """Whether the unit's bytes are copied unchanged from a range of a file.

        The blocks are read, hashed and written one by one, so that each block stays in the
        processor's cache until it is written. A copy within the kernel (`copy_file_range`) would
        have to read each block again for its hash, and takes up to twice as long.
        """
        return isinstance(self.expression, Stored) and self.expression.is_contiguous

    def blocks_at_once(self, nbytes: int) -> int:
        """Return the number of blocks that are computed at once; see `Tensor.blocks_at_once`."""
        return self.expression.blocks_at_once(self.block_elements, nbytes)

    def block_run(self, indices: range) -> BlockRun:
        """Return the run of consecutive blocks, which are read and computed together."""
        return BlockRun.of(self.numel, self.block_elements, indices)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One output file.

    Args:
        number: the shard's place in the plan.
        name: final name, without ``.partial``; in a pipeline, with the folder of its component.
        header: the file's first bytes: the length and the JSON.
        nbytes: size of the whole file in bytes, with the header.
        first: the number of its first unit in the plan. The units of a shard are consecutive.
        last: one past the number of its last unit.
        copied: the weight file whose exact copy this file is; None if this file is no copy.
    """

    number: int
    name: str
    header: bytes
    nbytes: int
    first: int
    last: int
    copied: SourceFileKey | None = None


@dataclass(frozen=True)
class LayerOrigin:
    """The origin of an output layer: (number of the model, number of the layer) for every input."""

    inputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LayerMap:
    """The origins of the layers of one stack, in an output whose layers were chosen by slices.

    Args:
        stack: the stack's name in the output, like ``model.layers``.
        keys: the dotted keys of config.json that hold the number of the stack's layers.
        origins: the origin of each layer of the stack, in the order of the output.
    """

    stack: str
    keys: tuple[str, ...]
    origins: tuple[LayerOrigin, ...]

    @property
    def keeps_numbers(self) -> bool:
        """Whether every layer has the same number in the output as in its model."""
        return all(o.inputs[0][1] == place for place, o in enumerate(self.origins))


@dataclass(frozen=True)
class Plan:
    """Everything that is known before the first byte is computed.

    Args:
        sources: the pinned inputs; stored tensors name their source by its place here.
        reference: the number of the model that provides the layout, config and tokenizer.
        layers: the stacks of the reference model's layers; none if adapters are combined.
        layer_maps: one map for each stack whose layers slices choose; empty if no slices choose
            layers.
        seed: the seed of everything random: masks, gates, noise, and the directions of an
            extraction.
        shard_size: largest shard in bytes; None if the shards are the files of the reference model.
        notes: messages for the user, one line each.
        reminders: the notes on files that the output lacks. They are printed again when the output
            is complete.
        vocabulary: the output's vocabulary; None if the reference's tokenizer is copied.
        chat_template: a Jinja template; None to keep the tokenizer's.
        tokenizers: the digest of each tokenizer that affects the output, by model.
        unshared: the treatment of tensors that only some models have.
        stages: the plans of earlier merges, whose results are models of this merge or of each
            other.
        stage_models: the results of stages, without and with adapters; numbered after the sources.
        mixture: the mixture of experts that is made; None if the output is not a mixture.
        adapter: the LoRA adapter that is extracted or combined; None if the output is a model.
        variants: the plans of a sweep's models, by their names; empty without a sweep. This plan
            contains the units and shards of all variants. Its recipe is the sweep's, and all other
            fields are those of the first variant.
        kept: names of the stages whose results are also written. Their units and shards come after
            those of the model.
        left_out: the tensors of its models that this merge does not use. The plan of each stage has
            its own list.
        accounts: the use of every tensor of the sources in all stages, or the reason why a tensor
            is not used.
        quantised: the quantisation of the output's weights; None if they are plain.
    """

    recipe: Recipe
    sources: tuple[Source, ...]
    reference: int
    layers: Layers
    layer_maps: tuple[LayerMap, ...]
    units: tuple[Unit, ...]
    shards: tuple[Shard, ...]
    seed: int
    shard_size: int | None
    notes: tuple[str, ...] = ()
    reminders: tuple[str, ...] = ()
    vocabulary: OutputVocabulary | None = None
    chat_template: str | None = None
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    unshared: Unshared = Unshared.REFUSED
    stages: tuple[Plan, ...] = ()
    stage_models: tuple[Source, ...] = ()
    mixture: MadeMixture | None = None
    adapter: MadeAdapter | None = None
    variants: Mapping[str, Plan] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    accounts: Accounts = field(default_factory=Accounts)
    quantised: QuantisedOutput | None = None

    def model(self, number: int) -> Source:
        """Return a source or the result of a stage, by its number."""
        return (*self.sources, *self.stage_models)[number]

    @property
    def own_sources(self) -> tuple[Source, ...]:
        """The sources that this model is made of; other sources are only for other variants."""
        recipes = (self.recipe, *(stage.recipe for stage in self.stages))
        refs = [
            ref for recipe in recipes for document in recipe.documents for ref in document.models
        ]
        refs_and_adapters = {part for ref in refs for part in (ref, *ref.parts[1:])}
        return tuple(source for source in self.sources if source.ref in refs_and_adapters)

    @property
    def method(self) -> str:
        """The merge method, or the architecture of the mixture that is made."""
        return self.mixture.architecture if self.mixture else self.recipe.merge_method

    @property
    def is_undecided(self) -> bool:
        """Whether ranks, offsets and sizes are unknown until all units are committed."""
        return self.adapter is not None and self.adapter.is_undecided

    @property
    def merged(self) -> str:
        """A description of the merge: ``ties of 3 models in 2 stages``."""
        stages = f" in {counted(1 + len(self.stages), 'stage')}" if self.stages else ""
        sweep = f", {counted(len(self.variants), 'variant')}" if self.variants else ""
        return f"{self.method} of {counted(len(self.own_sources), 'model')}{stages}{sweep}"

    @property
    def is_gguf(self) -> bool:
        """Whether the output is a single GGUF file, which contains the config and the tokenizer."""
        return any(shard.name.endswith(GGUF) for shard in self.shards[:1])

    @property
    def reference_model(self) -> Source:
        """The model that provides the layout, config and tokenizer."""
        return self.model(self.reference)

    def with_reminders(self, reminders: Iterable[str]) -> Plan:
        """Return the plan with more reminders, which are also added to its notes."""
        new_reminders = tuple(reminders)
        return replace(
            self, notes=(*self.notes, *new_reminders), reminders=(*self.reminders, *new_reminders)
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the output, by name, in their order in the files.

        The tensors of a quantised weight are bytes (U8).
        """
        tensors: dict[str, Tensor] = {}
        units = iter(self.units)
        for unit in units:
            first_element = 0
            for name, shape in unit.tensors.items():
                if name in unit.dtypes:
                    shape = (nbytes(unit.dtypes[name], math.prod(shape)),)
                tensor_elements = math.prod(shape)
                if tensor_elements > unit.numel:
                    further_units = islice(units, tensor_elements // unit.numel - 1)
                    expressions = (
                        unit.expression,
                        *(further_unit.expression for further_unit in further_units),
                    )
                    tensors[name] = Stacked.of(name, shape, expressions)
                else:
                    tensors[name] = Sliced.of(name, shape, unit.expression, first_element)
                first_element += tensor_elements
        return tensors

    @property
    def output_bytes(self) -> int:
        """The size of all shards."""
        return sum(shard.nbytes for shard in self.shards)

    def nodes(self) -> Iterator[Tensor]:
        """Yield every node of the units' expressions, once for each use of the node."""
        for unit in self.units:
            yield from unit.expression.nodes()

    def files_of(self, tensor: Tensor, *kinds: str) -> frozenset[SourceFileKey]:
        """Return the weight files that a tensor is read from.

        Args:
            tensor: the root of an expression: the files of all stored tensors in it count.
            kinds: the kinds of sources whose files are wanted, like ``local``.
        """
        return frozenset(
            (stored.source, stored.file)
            for stored in stored_in(tensor)
            if self.sources[stored.source].part_of(stored.file)[0].kind in kinds
        )

    def remote_files_of(self, unit: Unit) -> frozenset[SourceFileKey]:
        """Return the remote files that a unit reads, whether downloaded or streamed."""
        return self.files_of(unit.expression, *REMOTE)
