"""The tensors of a model, each paired with the base model's, by transformers' names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from resumerge.errors import Problem
from resumerge.layout import CanonicalNames, is_computed
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import ModelRef, Recipe
from resumerge.sizes import counted, some
from resumerge.sources.adapters.experts import ExpertParameter, Experts, is_stored_transposed
from resumerge.sources.adapters.model_names import ModelNames
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_names import tied_names
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Stacked, Tensor

PACKED = ("gate_up_proj", "up_proj", "down_proj")
"""The parameters that hold the experts of a layer, in the order in which classes declare them."""

COUNTER = "num_batches_tracked"

SHOWN = 5


@dataclass(frozen=True)
class Pair:
    """A tensor of the model, and the same tensor of the base model.

    Args:
        name: its name in transformers.
        tied: whether the files have the tensor only under the name of a tensor that it is tied to.
    """

    name: str
    own: Tensor
    base: Tensor
    tied: bool = False

    @property
    def module(self) -> str:
        """The name of the module that holds it."""
        return self.name.rpartition(".")[0]

    @property
    def role(self) -> str:
        """The last word of its name: ``weight``, ``bias``, or the name of another parameter."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class ExpertsPair:
    """A parameter that holds a matrix of each expert of a layer, in both models.

    Args:
        name: its name in transformers.
        matrices: for each expert its matrix in the model and in the base model.
        shape: the (rows, columns) of each matrix.
        transposed: whether the matrices are stored as (in, out).
    """

    name: str
    matrices: tuple[tuple[Tensor, Tensor], ...]
    shape: tuple[int, int]
    transposed: bool

    @property
    def module(self) -> str:
        """The name of the module that holds it."""
        return self.name.rpartition(".")[0]


@dataclass
class Matching:
    """The tensors of a model beside those of its base model.

    Args:
        recipe: the recipe that extracts the adapter, whose lines the problems name.
        models: both models; the reference is the model to extract from.
        base: the reference of the base model, a key of ``models.sources``.

    Attributes:
        pairs: the tensors that both models have, in the order of the model's files.
        experts: the parameters that hold experts.
        left_out: the buffers.
        counters: the counters of batches, which are saved with their norm, by the norm's name.
        problems: tensors that only one model has, or whose shapes differ.
    """

    recipe: Recipe
    models: ModelViews
    base: ModelRef
    pairs: list[Pair] = field(default_factory=list)
    experts: list[ExpertsPair] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    counters: dict[str, Tensor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.models.sources[self.models.reference]
        model_canonical = CanonicalNames(model.tensors, model.config)
        base = self.models.sources[self.base]
        base_canonical = CanonicalNames(base.tensors, base.config)
        base_names = {base_canonical.of(name): name for name in base.tensors}
        stored_by_tied = tied_names(model.config, model.tensors)
        matched_names: set[str] = set()
        only_in_model: list[str] = []
        names_of_packed: dict[str, list[str]] = {}
        for name in [*self.models.ordered(self.models.reference), *stored_by_tied]:
            tensor = model.tensors[stored_by_tied.get(name, name)]
            transformers_name = model_canonical.of(name)
            base_name = self.models.name_in(self.base, name)
            if base_name not in base.tensors:
                base_name = base_names.get(transformers_name, base_name)
            if is_computed(tensor):
                self.left_out.append(LeftOut(tensor, UnusedReason.COMPUTED))
                matched_names.add(base_name)
                if transformers_name.endswith(f".{COUNTER}"):
                    self.counters[transformers_name.removesuffix(f".{COUNTER}")] = tensor
            elif _is_of_experts(transformers_name):
                names_of_packed.setdefault(transformers_name, []).append(name)
            elif (base_tensor := self.models.find(self.base, base_name)) is not None:
                self.pairs.append(
                    Pair(transformers_name, tensor, base_tensor, name in stored_by_tied)
                )
                matched_names |= {base_name, base_tensor.name}
            else:
                only_in_model.append(name)
        matched_names |= self._match_experts(names_of_packed, only_in_model)
        self._check(model, only_in_model, matched_names)

    def _match_experts(self, packed: dict[str, list[str]], lacking: list[str]) -> set[str]:
        """Match the parameters of experts, packed or not; return the matched names of the base."""
        experts_of_models = [
            Experts(ModelNames(source.tensors), source.tensors) for source in self._both()
        ]
        matched_names: set[str] = set()
        for name, stored_names in packed.items():
            container, _, word = name.rpartition(".")
            parameters_of_sides = [experts.parameters(container) for experts in experts_of_models]
            matching_parameters = [
                _parameter(parameters, word) for parameters in parameters_of_sides
            ]
            if None in matching_parameters:
                lacking += stored_names
                continue
            own_parameter, base_parameter = (
                parameter for parameter in matching_parameters if parameter is not None
            )
            if (own_parameter.shape, len(own_parameter.experts)) != (
                base_parameter.shape,
                len(base_parameter.experts),
            ):
                shapes = (
                    f"{len(parameter.experts)} of {list(parameter.shape)}"
                    for parameter in (base_parameter, own_parameter)
                )
                self.problems.append(self._unlike(name, *shapes))
                continue
            matrices = tuple(
                (
                    _as_one(name, own_parameter.shape, own_expert),
                    _as_one(name, own_parameter.shape, base_expert),
                )
                for own_expert, base_expert in zip(own_parameter.experts, base_parameter.experts)
            )
            is_transposed = bool(is_stored_transposed(parameters_of_sides[0]))
            self.experts.append(ExpertsPair(name, matrices, own_parameter.shape, is_transposed))
            matched_names |= {
                matrix.name.partition("[")[0]
                for expert in base_parameter.experts
                for matrix in expert
            }
        return matched_names

    def _both(self) -> Iterator[Source]:
        yield self.models.sources[self.models.reference]
        yield self.models.sources[self.base]

    def _check(self, own: Source, lacking: list[str], used: set[str]) -> None:
        """Collect the tensors that only one model has, or that differ in shape, as problems.

        The base's buffers are left out.
        """
        base = self.models.sources[self.base]
        only_in_base = []
        for name, tensor in base.tensors.items():
            if is_computed(tensor):
                self.left_out.append(LeftOut(tensor, UnusedReason.COMPUTED))
            elif name not in used and tensor.name not in used:
                only_in_base.append(name)
        for names, owner, lacking_model in ((lacking, own, base), (only_in_base, base, own)):
            if names:
                self.problems.append(
                    self.recipe.problem(
                        f"{counted(len(names), 'tensor')} of {owner.ref} are not in "
                        f"{lacking_model.ref}",
                        "base_model",
                        expected="two models of one architecture",
                        found=some(names, most=SHOWN),
                        fix="Name the base model that this one was trained from",
                    )
                )
        tokens = self.models.vocabularies[self.models.reference].found
        other_shapes = []
        for pair in self.pairs:
            axis = 1 if pair.own.name in tokens else 0  # the number of tokens may differ
            if pair.own.shape[axis:] != pair.base.shape[axis:]:
                other_shapes.append(pair)
        self.problems += [
            self._unlike(pair.name, *(str(list(tensor.shape)) for tensor in (pair.base, pair.own)))
            for pair in other_shapes[:SHOWN]
        ]

    def _unlike(self, name: str, expected: str, found: str) -> Problem:
        return self.recipe.problem(
            f"{name} has another shape in the base model",
            "base_model",
            expected=f"{expected}, as in {self.base}",
            found=f"{found} in {self.models.reference}",
            fix="Name the base model that this one was trained from",
        )


def _is_of_experts(name: str) -> bool:
    return name.endswith(tuple(f".experts.{word}" for word in PACKED))


def _parameter(parameters: tuple[ExpertParameter, ...], word: str) -> ExpertParameter | None:
    return next((p for p in parameters if p.name.rpartition(".")[2] == word), None)


def _as_one(name: str, shape: tuple[int, int], matrices: tuple[Tensor, ...]) -> Tensor:
    return matrices[0] if len(matrices) == 1 else Stacked.of(name, shape, matrices)
