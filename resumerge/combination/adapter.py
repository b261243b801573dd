"""The changes of one adapter, read without the model that it was trained on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from resumerge.errors import Problem
from resumerge.extraction.matching import PACKED
from resumerge.recipe.types import Input
from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.lora import program_of
from resumerge.sources.adapters.refusals import problem_with
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor
from resumerge.tensors.dtypes import FLOATS

_WRAPPED = re.compile(r"(\.base_layer)+$")

_WITH_BASE = (
    "merge each adapter with its model (write base+adapter for it in the recipe), or leave this "
    "adapter out"
)


class MatricesKind(Enum):
    """The ways in which peft saves the matrices of a module."""

    MODULE = "a linear layer or a convolution"
    EMBEDDING = "an embedding"
    PARAMETER = "a parameter (target_parameters)"


@dataclass(frozen=True)
class Matrices:
    """The matrices of one adapter for one module.

    Args:
        name: the module's name; for experts, their parameter's name.
        a: matrix A, shape (experts * rank, inputs); for a convolution with further dimensions.
        b: matrix B, shape (outputs, experts * rank); for a convolution with further dimensions.
        rank: the rank of one expert's change.
        experts: the number of experts; 1 for a plain module.
    """

    name: str
    kind: MatricesKind
    a: Tensor
    b: Tensor
    scale: float
    rank: int
    experts: int = 1

    @property
    def within(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dimensions of A and of B without the rank: those of the input and of the output."""
        return self.a.shape[1:], (self.b.shape[0], *self.b.shape[2:])

    @property
    def matrix(self) -> tuple[int, int]:
        """The (outputs, inputs) of one matrix."""
        return self.b.shape[0], math.prod(self.a.shape[1:])


@dataclass
class AdapterChanges:
    """The changes of one adapter.

    Args:
        input_: the adapter's entry in the recipe.
        source: the opened adapter, with its tensors under the names of the program that wrote it.

    Attributes:
        settings: the adapter's config.
        matrices: the matrices of each module, by the module's name.
        whole: the tensors that the adapter saves whole, by their names in the model.
        left_out: the tensors that are not used.
        problems: the reasons why the adapter cannot be combined with others.

    Raises:
        InputError: the config is not that of a LoRA adapter, or is that of an unsupported variant.
    """

    input_: Input
    source: Source
    settings: LoraConfig = field(init=False)
    matrices: dict[str, Matrices] = field(default_factory=dict)
    whole: Mapping[str, Tensor] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        program = program_of(self.source)
        self.settings = program.settings(self.source)
        tensors = program.renamed(self.source.tensors)
        names = AdapterNames.of(tensors)
        self.whole = names.whole
        self.left_out = [LeftOut(tensors[name], UnusedReason.NOT_LOADED) for name in names.ignored]
        for key in names.unknown:
            self._problem("The adapter has a tensor of an unknown kind", key)
        for first_name, second_name in names.doubled:
            message = "Two tensors of the adapter have names that mean the same"
            self._problem(message, second_name, "one tensor for each", f"also {first_name}")
        if self.settings.dora:
            message = (
                "An adapter with DoRA cannot be combined with others: it scales the base model"
            )
            self._problem(message, "use_dora: true", "use_dora: false", fix=_WITH_BASE)
        parameter_modules: dict[str, list[str]] = {}
        for module, roles in names.modules.items():
            container = _WRAPPED.sub("", module)
            if self._parameters(container):
                parameter_modules.setdefault(container, []).append(module)
            elif (pair := self._pair(module, roles)) is not None:
                rank = pair[0].shape[0]
                scale = self.settings.scale(module, rank, alpha=1.0 if "alpha" in roles else None)
                kind = MatricesKind.EMBEDDING if "embedding_A" in roles else MatricesKind.MODULE
                self._add(Matrices(module, kind, *pair, scale, rank))
        for container, modules in parameter_modules.items():
            self._add_parameters(container, modules, names.modules)
        if not (self.matrices or self.whole or self.problems):
            self._problem("The adapter has no tensors", "none", "LoRA matrices")

    def _parameters(self, container: str) -> list[str]:
        """Return a module's parameters that have matrices, in the order of declaration."""
        ends = (end.rpartition(".") for end in self.settings.parameters)
        words = [word for place, _, word in ends if place and f".{container}".endswith(f".{place}")]
        return sorted(words, key=lambda word: (word not in PACKED, (*PACKED, word).index(word)))

    def _pair(self, module: str, roles: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return A and B of a module; None, with a problem, if they cannot be combined."""
        if "magnitude" in roles:
            if not self.settings.dora:
                message = "An adapter with DoRA cannot be combined with others"
                self._problem(message, module, "no magnitude vectors", fix=_WITH_BASE)
            return None
        if other_roles := roles.keys() - {"A", "B", "embedding_A", "embedding_B"}:
            message = (
                "The adapter has more than matrices for a module, and is not combined with others"
            )
            if other_roles == {"delta"}:
                message = (
                    "The adapter trains rows of tokens, which cannot be combined without the base"
                )
            self._problem(
                message, f"{module} ({', '.join(other_roles)})", "A and B alone", fix=_WITH_BASE
            )
            return None
        matrix_a, matrix_b = (roles.get(role) or roles.get(f"embedding_{role}") for role in "AB")
        if matrix_a is None or matrix_b is None or len(roles.keys() & {"A", "embedding_B"}) != 1:
            self._problem("The adapter lacks one of the two matrices of a module", module)
            return None
        if not {matrix_a.dtype, matrix_b.dtype} <= FLOATS.keys() or not _fit(matrix_a, matrix_b):
            self._problem(
                "The two matrices of a module do not fit each other",
                module,
                "A and B of floats, with the same rank",
                f"A {matrix_a.dtype} {list(matrix_a.shape)} and "
                f"B {matrix_b.dtype} {list(matrix_b.shape)}",
            )
            return None
        return matrix_a, matrix_b

    def _add_parameters(
        self, container: str, modules: list[str], every: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Add the matrices of experts' parameters; peft wraps the first parameter innermost."""
        words = self._parameters(container)
        modules.sort(key=len, reverse=True)
        if len(modules) != len(words) or (len(words) > 1 and not {*words} <= {*PACKED}):
            message = "The adapter has not one pair of matrices for each parameter of a module"
            self._problem(message, ", ".join(modules), ", ".join(words))
            return
        for module, word in zip(modules, words):
            name = f"{container}.{word}"
            pair, rank = self._pair(module, every[module]), self.settings.rank_of(name)
            if pair is None:
                continue
            if not rank or pair[0].shape[0] % rank or len(pair[0].shape) != 2:
                rows_found = f"{pair[0].shape[0]} rows of A"
                self._problem(_OTHER_RANK, name, f"a multiple of {rank or 0:g} (r)", rows_found)
                continue
            experts = int(pair[0].shape[0] // rank)
            scale = self.settings.scale(name, int(rank))
            self._add(Matrices(name, MatricesKind.PARAMETER, *pair, scale, int(rank), experts))

    def _add(self, matrices: Matrices) -> None:
        configured_rank = self.settings.rank_of(matrices.name)
        if configured_rank is not None and configured_rank != matrices.rank:
            expected_rank = f"rank {configured_rank:g} (r, rank_pattern)"
            found_rank = f"rank {matrices.rank}"
            self._problem(_OTHER_RANK, matrices.name, expected_rank, found_rank)
        self.matrices[matrices.name] = matrices

    def _problem(
        self, what: str, name: str, expected: str = "", found: str = "", fix: str = ""
    ) -> None:
        fix = fix or "download or save the adapter again"
        self.problems.append(
            problem_with(self.source, what, name, expected=expected, found=found, fix=fix)
        )


_OTHER_RANK = "The adapter's matrices have another rank than its config says"


def _fit(a: Tensor, b: Tensor) -> bool:
    """Return whether two matrices have the same rank, and B has only outputs and rank."""
    if len(a.shape) < 2 or len(b.shape) < 2 or not a.shape[0]:
        return False
    return a.shape[0] == b.shape[1] and b.numel == b.shape[0] * b.shape[1]


def every_problem(adapters: list[AdapterChanges]) -> Iterator[Problem]:
    """Yield the problems of all adapters."""
    for adapter in adapters:
        yield from adapter.problems
