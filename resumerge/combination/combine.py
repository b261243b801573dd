"""The plan of a combined adapter: its tensors, its config, and notes for the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from resumerge.combination.adapter import AdapterChanges, MatricesKind
from resumerge.combination.adapter_config import adapter_config, notes_on_configs
from resumerge.combination.factors import Combining, ValuesOf, dtype_of
from resumerge.combination.modules import ChangedModule, ChangedModules
from resumerge.combination.whole import WholeTensors
from resumerge.errors import InputError, Problem
from resumerge.extraction import MadeAdapter
from resumerge.extraction.matching import PACKED
from resumerge.extraction.planner import PREFIX
from resumerge.layout.layers import step_position
from resumerge.layout.names import split
from resumerge.recipe import Recipe
from resumerge.recipe.types import Input
from resumerge.sizes import counted
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors.dtypes import BY_TORCH_NAME
from resumerge.tensors.target import Target

SHOWN = 5
"""The most problems of one adapter in a message."""


def combine(
    recipe: Recipe,
    adapters: Sequence[tuple[Input, Source]],
    combining: Combining,
    values_of: ValuesOf,
) -> tuple[MadeAdapter, list[Target], list[str], list[LeftOut]]:
    """Plan an adapter whose change is the merge of the changes of several adapters.

    Args:
        recipe: the recipe that combines the adapters; if it has a plain dtype, all tensors get it.
        adapters: the adapters, in the recipe's order, each with its entry in the recipe.
        combining: the method, and the rank of the result.
        values_of: returns the parameters of a tensor, by its name and its position for gradients.

    Returns:
        the adapter; its tensors; notes; the tensors of the adapters that are not used.

    Raises:
        InputError: a source is not an adapter, or is damaged; the adapters do not fit each other;
            or one of their tensors cannot be combined without the base model.
    """
    changes_of_adapters, problems = _read(adapters)
    if problems:
        raise InputError(problems)
    modules = ChangedModules(recipe, changes_of_adapters)
    if modules.problems:
        raise InputError(modules.problems[:SHOWN])
    planner = _Planner(recipe, changes_of_adapters, modules, combining, values_of)
    return planner.plan()


def _read(
    adapters: Sequence[tuple[Input, Source]],
) -> tuple[list[AdapterChanges], list[Problem]]:
    changes_of_adapters, problems = [], list[Problem]()
    for input_, source in adapters:
        try:
            changes_of_adapters.append(AdapterChanges(input_, source))
        except InputError as error:
            problems += error.problems
        else:
            problems += changes_of_adapters[-1].problems[:SHOWN]
    return changes_of_adapters, problems


class ContradictingParameters(InputError):
    """Parameters that contradict each other, so that the method rejects them."""


@dataclass(frozen=True)
class _Planner:
    """Makes the tensors and config of the combined adapter from the changes of all adapters."""

    recipe: Recipe
    adapters: Sequence[AdapterChanges]
    modules: ChangedModules
    combining: Combining
    values_of: ValuesOf

    def plan(self) -> tuple[MadeAdapter, list[Target], list[str], list[LeftOut]]:
        recipe_dtype = self.recipe.plain_dtype
        dtype = BY_TORCH_NAME[recipe_dtype] if recipe_dtype else None
        names = {module.name for module in self.modules.modules}
        whole_tensors = WholeTensors(
            self.recipe, self.adapters, self.combining, self.values_of, dtype, names
        )
        if problems := [*whole_tensors.problems()]:
            raise InputError(problems)
        ranks = self._ranks()
        targets = [*self._matrices(ranks, dtype), *whole_tensors.targets()]
        saved_modules = tuple(whole_tensors.modules)
        config = adapter_config(self.adapters, self.modules, ranks, saved_modules)
        unused_tensors = [tensor for adapter in self.adapters for tensor in adapter.left_out]
        copies = (
            copy for _, *further_copies in whole_tensors.copies.values() for copy in further_copies
        )
        unused_tensors += (LeftOut(copy, UnusedReason.FROM_ANOTHER) for copy in copies)
        return (
            MadeAdapter(config, ranks, saved_modules),
            targets,
            [*self._notes(ranks)],
            unused_tensors,
        )

    def _ranks(self) -> dict[str, int]:
        """Return the rank of each module; for peft, parameters have the highest rank of all."""
        ranks = {module.name: self.combining.rank_of(module) for module in self.modules.modules}
        highest_rank = max(ranks.values(), default=1)
        parameter_names = [
            module.name
            for module in self.modules.modules
            if module.first.kind is MatricesKind.PARAMETER
        ]
        return {**ranks, **dict.fromkeys(parameter_names, highest_rank)}

    def _matrices(self, ranks: Mapping[str, int], dtype: str | None) -> Iterator[Target]:
        positions = _Positions([module.name for module in self.modules.modules])
        names = _Names(self.modules.modules)
        contradictions: dict[str, str] = {}
        for module in self.modules.modules:
            values = self.values_of(f"{module.name}.weight", positions.of(module.name))
            first_matrices, rank = module.first, ranks[module.name]
            dtypes = [
                matrix.dtype
                for matrices in module.matrices.values()
                for matrix in (matrices.a, matrices.b)
            ]
            target_dtype = dtype or dtype_of(dtypes)
            combined_matrices, contradiction = self.combining.combined(
                module, values, target_dtype, rank
            )
            if contradiction:
                contradictions.setdefault(contradiction, module.name)
            output_rows, *kernel_sizes = first_matrices.within[1]
            width = rank * first_matrices.experts
            name_of_a, name_of_b = names.of(module)
            shapes = {
                name_of_a: (width, *first_matrices.within[0]),
                name_of_b: (output_rows, width, *kernel_sizes),
            }
            yield Target(
                module.name,
                target_dtype,
                combined_matrices.shape,
                combined_matrices.numel,
                combined_matrices,
                shapes,
            )
        if contradictions:
            problems = [self._contradiction(*pair) for pair in contradictions.items()]
            raise ContradictingParameters(problems)

    def _contradiction(self, expected: str, module: str) -> Problem:
        return self.recipe.problem(
            f"The parameters of {self.combining.method.name} contradict each other",
            "parameters",
            expected=expected,
            found=f"other values, for {module}",
            fix="Change these values, or the filter or gradient that sets them for this module",
        )

    def _notes(self, ranks: Mapping[str, int]) -> Iterator[str]:
        method, count = self.combining.method, len(self.adapters)
        text = f"{counted(len(ranks), 'module')} of {counted(count, 'adapter')}"
        if not self.combining.rank and method.is_weighted_sum:
            yield f"{text}: their matrices are put beside each other, which loses nothing"
        else:
            yield f"{text} are combined in core space, and get matrices of rank " + (
                f"{self.combining.rank} at most" if self.combining.rank else "enough for all of it"
            )
        yield from notes_on_configs(self.adapters)
        yield from self.modules.notes


class _Positions:
    """The positions of modules for gradients, from 0 in the first layer to 1 in the last.

    The number of layers follows from the highest layer number among the modules.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._counts: dict[str, int] = {}
        for name in filter(None, map(split, names)):
            self._counts[name.stack] = max(self._counts.get(name.stack, 0), name.index + 1)

    def of(self, name: str) -> float:
        layer = split(name)
        return step_position(layer.index, self._counts[layer.stack]) if layer else 0.0


class _Names:
    """The names that peft gives to the matrices of modules."""

    def __init__(self, modules: Sequence[ChangedModule]) -> None:
        self._wrapped: dict[str, list[str]] = {}
        for module in modules:
            if module.first.kind is MatricesKind.PARAMETER:
                container, _, word = module.name.rpartition(".")
                self._wrapped.setdefault(container, []).append(word)
        for words in self._wrapped.values():
            words.sort(key=lambda word: (*PACKED, word).index(word))

    def of(self, module: ChangedModule) -> tuple[str, str]:
        """Return the names of A and B."""
        kind, name = module.first.kind, module.name
        if kind is MatricesKind.EMBEDDING:
            return f"{PREFIX}{name}.lora_embedding_A", f"{PREFIX}{name}.lora_embedding_B"
        if kind is MatricesKind.PARAMETER:
            # peft wraps the parameters in the order of their declaration: the first is innermost
            container, _, word = name.rpartition(".")
            words = self._wrapped[container]
            layers = [*accumulate(["", *[".base_layer"] * (len(words) - 1)])]
            name = f"{container}{layers[len(words) - 1 - words.index(word)]}"
        return f"{PREFIX}{name}.lora_A.weight", f"{PREFIX}{name}.lora_B.weight"
