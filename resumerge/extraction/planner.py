"""The plan of an extracted adapter: its tensors and its config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from resumerge.errors import InputError
from resumerge.extraction.adapter_config import adapter_config, rank_settings
from resumerge.extraction.choice import SHOWN, ModuleChoice
from resumerge.extraction.differences import OpenTensors, open_tensors
from resumerge.extraction.matching import COUNTER, PACKED, ExpertsPair, Matching
from resumerge.extraction.modules import ModuleKind, TunedModule
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.types import Extraction
from resumerge.sizes import counted, some
from resumerge.sources.left_out import LeftOut
from resumerge.tensors import Factors, Stacked, Tensor
from resumerge.tensors.dtypes import BITS, BY_TORCH_NAME
from resumerge.tensors.target import Target, block_elements

PREFIX = "base_model.model."
"""The prefix of the names of an adapter's tensors."""


@dataclass(frozen=True)
class MadeAdapter:
    """The facts about an adapter, besides its tensors.

    Args:
        config: adapter_config.json.
        ranks: the rank of each module, or parameter of experts, that has matrices, by its name.
        saved: the names of the modules that the adapter stores whole.
        vocabulary: the (rows of the base model's embedding, rows of the adapter's) if they differ,
            else None.
        parameters: the names of experts' parameters that have matrices, all of the highest rank.
        highest: the highest possible rank of each module, if the computed differences decide the
            ranks; else empty.
    """

    config: Mapping[str, Any]
    ranks: Mapping[str, int]
    saved: tuple[str, ...]
    vocabulary: tuple[int, int] | None = None
    parameters: tuple[str, ...] = ()
    highest: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_undecided(self) -> bool:
        """Whether the ranks are the highest ones: the differences may still choose smaller ones."""
        return bool(self.highest) and self.ranks == self.highest

    def with_ranks(self, chosen: Mapping[str, int]) -> MadeAdapter:
        """Return the adapter with other ranks, from 1 to the highest rank of each module."""
        ranks = {
            name: max(1, min(chosen.get(name, highest_rank), highest_rank))
            for name, highest_rank in self.highest.items()
        }
        ranks |= dict.fromkeys(self.parameters, max(ranks.values()))
        config = {**self.config, **rank_settings(ranks, self.parameters)}
        return replace(self, config=config, ranks=ranks)


def extract(
    recipe: Recipe,
    extraction: Extraction,
    models: ModelViews,
    *,
    seed: int,
    open_tensors: OpenTensors = open_tensors,
) -> tuple[MadeAdapter, list[Target], list[str], list[LeftOut]]:
    """Plan an adapter that changes the base model into another model.

    Tensors are read up to their first difference; equal tensors are omitted from the adapter.

    Args:
        recipe: the recipe that extracts the adapter.
        extraction: the recipe's part on the extraction.
        models: both models; the reference is the model to extract from.
        seed: the seed of random directions.
        open_tensors: opens the tensors for reading; the tensors of a stage need a function of their
            own.

    Returns:
        the adapter; its tensors; notes; the tensors of the models that are not used.

    Raises:
        InputError: the models do not fit, or the adapter would be empty, or could not be loaded.
        Resumable: a file cannot be read now.
    """
    assert recipe.base_model is not None
    matching = Matching(recipe, models, recipe.base_model)
    if matching.problems:
        raise InputError(matching.problems)
    choice = ModuleChoice(recipe, extraction, models, recipe.base_model, matching, open_tensors)
    if choice.problems:
        raise InputError(choice.problems)
    planner = _Planner(recipe, extraction, models, recipe.base_model, choice, seed)
    targets = list(planner.targets())
    return planner.made(), targets, list(planner.notes()), choice.left_out


@dataclass(frozen=True)
class _Planner:
    """Makes an adapter's tensors and config from the choice of its contents."""

    recipe: Recipe
    extraction: Extraction
    models: ModelViews
    base: ModelRef
    choice: ModuleChoice
    seed: int

    @property
    def _ranks(self) -> dict[str, int]:
        """The rank of each module that has matrices; experts have the highest rank of all."""
        max_rank = self.extraction.max_rank
        ranks = {
            name: min(max_rank, *module.matrix) for name, module in self.choice.decomposed.items()
        }
        expert_ranks = [min(max_rank, *pair.shape) for pair in self.choice.experts.values()]
        highest_rank = max([*ranks.values(), *expert_ranks], default=1)
        return {**ranks, **dict.fromkeys(self.choice.experts, highest_rank)}

    def targets(self) -> Iterator[Target]:
        """Yield every tensor of the adapter, in the order of the model's files."""
        ranks = self._ranks
        biases = {pair.name for pair in self.choice.biases}
        for module in self.choice.modules:
            if module.name in self.choice.saved:
                for pair in module.pairs.values():
                    yield _whole(f"{PREFIX}{pair.name}", pair.own)
                if (counter := self.choice.matching.counters.get(module.name)) is not None:
                    yield _whole(f"{PREFIX}{module.name}.{COUNTER}", counter)
                continue
            if module.name in self.choice.decomposed:
                yield self._factors_of(module, ranks[module.name])
            if (bias := module.pairs.get("bias")) is not None and bias.name in biases:
                wrapper = ".base_layer" if module.name in self.choice.decomposed else ""
                saved_bias = bias.own if self.choice.is_included(module.name) else bias.base
                yield _whole(f"{PREFIX}{module.name}{wrapper}.bias", saved_bias)
        for whole_experts in self.choice.whole_experts.values():
            matrices = tuple(own_matrix for own_matrix, _ in whole_experts.matrices)
            stacked_experts = Stacked.of(
                whole_experts.name, (len(matrices), *whole_experts.shape), matrices
            )
            yield _whole(f"{PREFIX}{whole_experts.name}", stacked_experts)
        yield from self._experts(ranks)

    def _experts(self, ranks: Mapping[str, int]) -> Iterator[Target]:
        pairs_by_container: dict[str, list[ExpertsPair]] = {}
        for pair in self.choice.experts.values():
            pairs_by_container.setdefault(pair.module, []).append(pair)
        for pairs in pairs_by_container.values():
            pairs.sort(key=lambda pair: PACKED.index(pair.name.rpartition(".")[2]))
            # peft wraps the parameters in the order of their declaration: the first is innermost
            layers = [*accumulate(["", *[".base_layer"] * (len(pairs) - 1)])]
            for pair, inner_layers in zip(pairs, reversed(layers)):
                yield self._factors(
                    pair.name,
                    pair.matrices,
                    pair.shape,
                    pair.transposed,
                    ranks[pair.name],
                    [
                        f"{pair.module}{inner_layers}.lora_{matrix_letter}.weight"
                        for matrix_letter in "AB"
                    ],
                )

    def _factors_of(self, module: TunedModule, rank: int) -> Target:
        pair, kind = module.weight, module.kind
        is_embedding = kind is ModuleKind.EMBEDDING
        embedding_ends = ("lora_embedding_A", "lora_embedding_B") if is_embedding else ()
        names = [
            f"{module.name}.{end}" for end in embedding_ends or ("lora_A.weight", "lora_B.weight")
        ]
        target = self._factors(
            module.name,
            ((pair.own, pair.base),),
            module.matrix,
            kind in (ModuleKind.EMBEDDING, ModuleKind.TRANSPOSED),
            rank,
            names,
        )
        if kind is ModuleKind.CONVOLUTION:
            output_channels, *kernel_shape = pair.own.shape
            name_of_a, name_of_b = target.tensors
            shapes = {
                name_of_a: (rank, *kernel_shape),
                name_of_b: (output_channels, rank, *(1 for _ in kernel_shape[1:])),
            }
            return replace(target, tensors=shapes)
        return target

    def _factors(
        self,
        name: str,
        pairs: tuple[tuple[Tensor, Tensor], ...],
        matrix: tuple[int, int],
        transposed: bool,
        rank: int,
        names: list[str],
    ) -> Target:
        input_size, output_size = matrix if transposed else matrix[::-1]
        width = rank * len(pairs)
        dtype = self._dtype(pairs[0][0])
        factors = Factors(
            name=name,
            dtype=dtype,
            shape=(width * (input_size + output_size),),
            pairs=tuple((own.exact, base.exact) for own, base in pairs),
            matrix=matrix,
            transposed=transposed,
            rank=rank,
            searched=rank,
            distributed=self.extraction.distribute_scale,
            epsilon=self.extraction.sv_epsilon,
            energy=self.extraction.energy,
            key=f"{self.seed}/directions/{name}",
            models=(self.base.text, self.models.reference.text),
        )
        name_of_a, name_of_b = (PREFIX + name_in_model for name_in_model in names)
        shapes = {name_of_a: (width, input_size), name_of_b: (output_size, width)}
        return Target(name, dtype, factors.shape, factors.numel, factors, shapes)

    def _dtype(self, tensor: Tensor) -> str:
        if self.recipe.out_dtype:
            return BY_TORCH_NAME[self.recipe.out_dtype]
        return tensor.dtype if BITS[tensor.dtype] >= BITS["BF16"] else "BF16"

    def made(self) -> MadeAdapter:
        """Return the adapter, without its tensors."""
        ranks = self._ranks
        base = self.models.sources[self.base]
        module_names = {module.name for module in self.choice.modules}
        module_names |= {pair.module for pair in self.choice.matching.experts}
        for name in list(module_names):
            words = name.split(".")
            module_names |= {".".join(words[:count]) for count in range(1, len(words))}
        config = adapter_config(
            self.base.name if self.base.lora is None else self.base.text,
            base.config,
            ranks=ranks,
            parameters=tuple(self.choice.experts),
            saved=self.choice.saved_modules,
            every=module_names,
            every_parameter={pair.name for pair in self.choice.matching.experts},
            biases=bool(self.choice.biases),
        )
        grown_vocabularies = [
            module
            for module in self.choice.saved.values()
            if module.is_vocabulary and module.is_grown
        ]
        rows = [
            (module.weight.base.shape[0], module.weight.own.shape[0])
            for module in grown_vocabularies
        ]
        return MadeAdapter(
            config,
            ranks,
            self.choice.saved_modules,
            next(iter(rows), None),
            tuple(self.choice.experts),
            ranks if self.extraction.chooses_ranks else {},
        )

    def notes(self) -> Iterator[str]:
        """Yield notes for the user."""
        model, base = self.models.reference, self.base
        modules = len(self.choice.decomposed) + len(self.choice.experts)
        max_rank = self.extraction.max_rank
        text = f"{counted(modules, 'module')} of {model} get matrices of rank {max_rank} at most"
        if self.choice.saved:
            text += f"; {counted(len(self.choice.saved_modules), 'module')} are saved whole"
        yield text
        if self.extraction.chooses_ranks:
            yield "the ranks are known once all changes are: sizes are the most that may be needed"
        if self.choice.saved:
            words = dict.fromkeys(name.rpartition(".")[2] for name in self.choice.saved_modules)
            yield f"saved whole (modules_to_save): {some(list(words), most=SHOWN)}"
        if self.choice.biases:
            yield (
                f"{len(self.choice.biases)} biases are saved (bias: all): peft puts them into the "
                "base model as it loads the adapter, and does not take them out again"
            )
        if self.choice.not_extracted:
            yield (
                f"not extracted, though not as in {base}: "
                f"{some(self.choice.not_extracted, most=SHOWN)}"
            )
        if self.extraction.embed_lora:
            names = [module.name for module in self.choice.saved.values() if module.is_vocabulary]
            if names:
                yield f"{some(names, most=SHOWN)} cannot be decomposed: tied, or of another size"
        if (adapter := self.made()).vocabulary is not None:
            rows_before, rows_after = adapter.vocabulary
            yield (
                f"the vocabulary has {rows_after} rows, in the base model {rows_before}: call its "
                f"resize_token_embeddings({rows_after}) before the adapter is loaded"
            )


def _whole(name: str, tensor: Tensor) -> Target:
    block = block_elements(None)
    return Target(name, tensor.dtype, tensor.shape, block, tensor, {name: tensor.shape})
