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
from resumerge.planning.quantised.alike import QuantisedOutput
from resumerge.recipe import Recipe
from resumerge.sizes import counted
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensors import Sliced, Stacked, Stored, Tensor, stored_in
from resumerge.tensors.dtypes import nbytes
from resumerge.tokenizers.output_vocabulary import OutputVocabulary


class Unshared(Enum):
    """The fate of tensors that not all models have, if they are matched by name alone."""

    REFUSED = ""
    UNION = "union"
    INTERSECTION = "intersection"


NUMERICS = 5
"""The version of the arithmetic, part of the fingerprint: raised when any output's bits may change.
"""

SourceFileKey = tuple[int, str]
"""A weight file: the number of its source in the plan, and its name there."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """An output tensor, or several that are computed as one: what the ledger journals.

    Args:
        index: position in the plan.
        dtype: the elements' type, by safetensors' name.
        shard: number of the shard it stands in.
        offset: offset of its first byte in the shard's file.
        nbytes: length in bytes.
        block_elements: elements of a block; `BLOCK`, or as many whole rows as fit if rows must not
            be split.
        expression: what computes it; a tensor that is not `Merged` is copied.
        tensors: shapes of the tensors of the output that begin in it, by name; they follow each
            other. If a unit has only the first part of one, the units after it have the rest, and
            no tensors. Empty also if only the place of the unit is known.
        dtypes: the dtypes of `tensors` where the unit is the bytes (U8) of tensors of several
            dtypes.
    """

    index: int
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
        """The number of blocks; an empty tensor has one, which is empty too."""
        return max(1, -(-self.numel // self.block_elements))

    def block_span(self, index: int) -> tuple[int, int]:
        """Return (offset in the shard's file, length) of a block, in bytes."""
        return self.span(range(index, index + 1))

    def span(self, indices: range) -> tuple[int, int]:
        """Return (offset in the shard's file, length) of consecutive blocks, in bytes."""
        first = nbytes(self.dtype, indices.start * self.block_elements)
        stop = nbytes(self.dtype, min(indices.stop * self.block_elements, self.numel))
        return self.offset + first, stop - first

    def bytes_of(self, indices: range) -> int:
        """Return the length of consecutive blocks, in bytes."""
        return self.span(indices)[1]

    @property
    def is_copied(self) -> bool:
        """Whether the unit's bytes lie in a file as they are.

        Its blocks are read, hashed and written one by one: each stays in the processor's cache
        meanwhile. A copy within the kernel (`copy_file_range`) would read it once more, and takes
        up to twice as long.
        """
        return isinstance(self.expression, Stored) and self.expression.is_contiguous

    def run_blocks(self, nbytes: int) -> int:
        """Return how many blocks are computed together; see `Tensor.run_blocks`."""
        return self.expression.run_blocks(self.block_elements, nbytes)

    def block_run(self, indices: range) -> BlockRun:
        """Return consecutive blocks, which are read and computed together."""
        return BlockRun.of(self.numel, self.block_elements, indices)


@dataclass(frozen=True)
class Shard:
    """One output file.

    Args:
        name: final name, without ``.partial``; with the folder of its component, if it has one.
        header: the file's first bytes: the length and the JSON.
        nbytes: size of the whole file.
        first: index of its first unit.
        last: one past the index of its last unit.
        copied: the weight file that it is a copy of, byte by byte; None if it is none.
    """

    index: int
    name: str
    header: bytes
    nbytes: int
    first: int
    last: int
    copied: SourceFileKey | None = None


@dataclass(frozen=True)
class LayerOrigin:
    """The origin of one layer of the output: (number of the model, its layer) of every input."""

    inputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LayerMap:
    """The origins of the layers of one stack, in an output whose layers were chosen by slices.

    Args:
        stack: its name in the output, like ``model.layers``.
        keys: the dotted keys of config.json that count it.
        origins: the origin of each layer of the output.
    """

    stack: str
    keys: tuple[str, ...]
    origins: tuple[LayerOrigin, ...]

    @property
    def keeps_numbers(self) -> bool:
        """Whether every layer of the output has the number that it has in its model."""
        return all(o.inputs[0][1] == place for place, o in enumerate(self.origins))


@dataclass(frozen=True)
class Plan:
    """Everything that is known before the first byte is computed.

    Args:
        sources: the pinned inputs; the operands count them.
        reference: the number of the model that gives the layout, config and tokenizer.
        layers: the reference model's layers.
        layer_maps: the map of each stack whose layers slices chose; empty if layers stay as they
            are.
        seed: the seed of the random masks.
        shard_size: largest shard in bytes; None if the shards are the files of the reference model.
        notes: what a person should know, a line each.
        reminders: the notes that are given again when the output is complete: what it lacks.
        vocabulary: the output's vocabulary; None if the reference's tokenizer comes along as it is.
        chat_template: a Jinja template; None to keep the tokenizer's.
        tokenizers: a digest of each tokenizer that decides the output, by model.
        unshared: what becomes of tensors that not all models have.
        stages: the plans of the merges whose results are models of this one, or of each other.
        stage_models: these results, and what adapters make of them; numbered after the sources.
        mixture: the mixture of experts that is made; None if none is.
        adapter: the LoRA adapter that is extracted; None if none is.
        variants: the plans of a sweep's models, by their names; empty without a sweep. Units and
            shards are those of all of them, and the rest, but for the recipe, is that of the first.
        kept: names of the stages whose results are written, too: their units and shards come after
            those of the model.
        left_out: the tensors of its models that this merge does not use, stages aside.
        accounts: what became of every tensor of the sources, in all stages.
        quantised: how the weights of the output are quantised; None if they are plain.
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
        """The sources without those that only other models of the same run are made of."""
        recipes = (self.recipe, *(stage.recipe for stage in self.stages))
        named = [ref for each in recipes for part in each.documents for ref in part.models]
        own = {each for ref in named for each in (ref, *ref.parts[1:])}
        return tuple(source for source in self.sources if source.ref in own)

    @property
    def method(self) -> str:
        """The merge method, or the architecture of the mixture that is made."""
        return self.mixture.architecture if self.mixture else self.recipe.merge_method

    @property
    def is_undecided(self) -> bool:
        """Whether shards have other places and sizes when all units are committed."""
        return self.adapter is not None and self.adapter.is_undecided

    @property
    def merged(self) -> str:
        """A description of what is merged: ``ties of 3 models in 2 stages``."""
        stages = f" in {counted(1 + len(self.stages), 'stage')}" if self.stages else ""
        sweep = f", {counted(len(self.variants), 'variant')}" if self.variants else ""
        return f"{self.method} of {counted(len(self.own_sources), 'model')}{stages}{sweep}"

    @property
    def is_gguf(self) -> bool:
        """Whether the output is one file in GGUF, which has config and tokenizer in it."""
        return any(shard.name.endswith(GGUF) for shard in self.shards[:1])

    @property
    def reference_model(self) -> Source:
        """The model that gives the layout, config and tokenizer."""
        return self.model(self.reference)

    def with_reminders(self, reminders: Iterable[str]) -> Plan:
        """Return the plan with further notes, which are given again when the output is complete."""
        added = tuple(reminders)
        return replace(self, notes=(*self.notes, *added), reminders=(*self.reminders, *added))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the output, by name, in their order in the files.

        Those of a quantised weight are bytes (U8).
        """
        found: dict[str, Tensor] = {}
        units = iter(self.units)
        for unit in units:
            first = 0
            for name, shape in unit.tensors.items():
                if name in unit.dtypes:
                    shape = (nbytes(unit.dtypes[name], math.prod(shape)),)
                size = math.prod(shape)
                if size > unit.numel:
                    rest = islice(units, size // unit.numel - 1)
                    parts = (unit.expression, *(other.expression for other in rest))
                    found[name] = Stacked.of(name, shape, parts)
                else:
                    found[name] = Sliced.of(name, shape, unit.expression, first)
                first += size
        return found

    @property
    def output_bytes(self) -> int:
        """The size of all shards."""
        return sum(shard.nbytes for shard in self.shards)

    def nodes(self) -> Iterator[Tensor]:
        """Yield every tensor that units are computed from, as often as it is used, and theirs."""
        for unit in self.units:
            yield from unit.expression.nodes()

    def files_of(self, tensor: Tensor, *kinds: str) -> frozenset[SourceFileKey]:
        """Return the weight files that a tensor is read from.

        Args:
            tensor: the tensor.
            kinds: the kinds of sources whose files are wanted, like ``local``.
        """
        return frozenset(
            (stored.source, stored.file)
            for stored in stored_in(tensor)
            if self.sources[stored.source].part_of(stored.file)[0].kind in kinds
        )
