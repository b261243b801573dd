"""Tensors that adapters save whole: modules_to_save, biases, and copies of base tensors.

The base model's tensors are not read. So only an average of trained tensors is exact: the same
tensor of all adapters, with factors that add up to 1. Embeddings and heads that were not trained
are copies, which peft saves beside their matrices or because the vocabulary has grown. They have to
be the same in all adapters that have them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from resumerge.combination.adapter import AdapterChanges
from resumerge.combination.factors import Combining, Values, ValuesOf, dtype_of
from resumerge.errors import Problem
from resumerge.extraction.differences import differ, open_tensors
from resumerge.extraction.planner import PREFIX
from resumerge.methods import METHODS
from resumerge.recipe import Recipe
from resumerge.tensors import Merged, Stacked, Tensor
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.target import Target, block_elements

NEAR_ONE = 1e-6
"""The largest difference of a sum of factors from 1: each factor is rounded to float32."""


class WholeTensors:
    """The tensors that adapters save whole.

    Args:
        recipe: the recipe that combines the adapters, whose lines the problems name.
        adapters: the adapters in the recipe's order, without problems of their own.
        combining: the method, whose factors weigh the averages, and its settings.
        values_of: returns the parameters of a tensor, by its name and its position for gradients.
        dtype: the dtype of the output; None for the dtype of the tensors.
        decomposed: the names of modules that have matrices.

    Attributes:
        copies: the adapters' copies of each tensor of the base model, by the tensor's name.
    """

    def __init__(
        self,
        recipe: Recipe,
        adapters: Sequence[AdapterChanges],
        combining: Combining,
        values_of: ValuesOf,
        dtype: str | None,
        decomposed: Collection[str],
    ) -> None:
        self._recipe, self._adapters, self._combining = recipe, adapters, combining
        self._values_of, self._dtype, self._decomposed = values_of, dtype, decomposed
        self._trained = [
            {name: tensor for name, tensor in adapter.whole.items() if _is_trained(adapter, name)}
            for adapter in adapters
        ]
        self.copies: dict[str, list[Tensor]] = {}
        for adapter, trained_tensors in zip(adapters, self._trained):
            for name in adapter.whole.keys() - trained_tensors.keys():
                self.copies.setdefault(name, []).append(adapter.whole[name])

    @property
    def modules(self) -> list[str]:
        """The names of the modules that are saved whole."""
        settings = self._adapters[0].settings
        names = (name for name in self._trained[0] if _is_under(name, settings.modules_to_save))
        return list(dict.fromkeys(name.rpartition(".")[0] for name in names))

    def problems(self) -> Iterator[Problem]:
        """Yield the reasons why whole tensors cannot be combined, one for each adapter."""
        for adapter, trained_tensors in zip(self._adapters, self._trained):
            for name, tensor in trained_tensors.items():
                if reason := self._why_not(name, tensor):
                    yield self._recipe.problem(
                        "What an adapter has whole cannot be combined without the base model",
                        f"{adapter.input_.path}.model",
                        expected="matrices alone; or modules_to_save and biases that all adapters "
                        "have, and a weighted sum with factors that add up to 1 (linear)",
                        found=f"{name} of {adapter.source.ref}: {reason}",
                        fix="merge each adapter with its model: write base+adapter for it, and "
                        "'base_model:' where the method needs one",
                    )
                    break
        kinds = {adapter.settings.bias for adapter in self._adapters}
        if len(kinds) > 1 and any(self._trained):
            yield self._recipe.problem(
                "The adapters train other biases each",
                "models",
                expected="the same 'bias' in every adapter_config.json",
                found=", ".join(sorted(kinds)),
                fix="merge each adapter with its model: write base+adapter for it",
            )

        with open_tensors(
            {adapter.source.ref: adapter.source for adapter in self._adapters}
        ) as evaluation:
            for name, (first_copy, *other_copies) in self.copies.items():
                have_one_layout = all(
                    _same_type_and_shape(first_copy, other_copy) for other_copy in other_copies
                )
                if not have_one_layout or differ(
                    evaluation, [(first_copy, other_copy) for other_copy in other_copies]
                ):
                    yield self._recipe.problem(
                        "The adapters have different copies of a tensor of their base model",
                        "models",
                        expected="adapters of one model, whose embeddings and heads are alike "
                        "before these change them",
                        found=f"{name}, which they have otherwise than each other",
                        fix="merge each adapter with its model: write base+adapter for it",
                    )

    def targets(self) -> Iterator[Target]:
        """Yield the averages and the copies; `problems` must have yielded none."""
        for name, tensor in self._trained[0].items():
            tensors = tuple(trained_tensors[name] for trained_tensors in self._trained)
            dtype = self._dtype or dtype_of([whole_tensor.dtype for whole_tensor in tensors])
            is_copy = len(tensors) == 1 and dtype == tensor.dtype
            yield self._target(name, tensor if is_copy else self._average(name, tensors, dtype))
        for name, (tensor, *_) in self.copies.items():
            yield self._target(name, tensor)

    def _target(self, name: str, tensor: Tensor) -> Target:
        module, _, parameter_name = name.rpartition(".")
        wrapper = ".base_layer" if module in self._decomposed else ""
        shape_by_name = {f"{PREFIX}{module}{wrapper}.{parameter_name}": tensor.shape}
        return Target(name, tensor.dtype, tensor.shape, block_elements(None), tensor, shape_by_name)

    def _average(self, name: str, tensors: tuple[Tensor, ...], dtype: str) -> Tensor:
        factors = self._combining.factors(self._values(name))
        average = Merged(
            name=name,
            dtype=dtype,
            shape=tensors[0].shape,
            method=METHODS["linear"].name,
            operands=tensors,
            params={"normalize": False},
            per_operand=tuple({"weight": factor} for factor in factors),
            base=None,
            seed=0,
            block_elements=block_elements(None),
            models=self._combining.models,
        )
        # A `Stacked` is not measured: the average is no change of a model.
        return Stacked.of(name, average.shape, (average,))

    def _values(self, name: str) -> Values:
        return self._values_of(name, 0.0)

    def _why_not(self, name: str, tensor: Tensor) -> str:
        """Return why a tensor cannot be combined; empty if it can."""
        for adapter, trained_tensors in zip(self._adapters, self._trained):
            other_tensor = trained_tensors.get(name)
            if other_tensor is None:
                return f"{adapter.source.ref} lacks it"
            if other_tensor.shape != tensor.shape:
                return f"it has another shape in {adapter.source.ref}"
        if len(self._adapters) > 1 and tensor.dtype not in FLOATS:
            return f"its elements are {tensor.dtype}, not floats"
        if not self._combining.method.is_weighted_sum:
            return f"{self._combining.method.name} is no weighted sum"
        total = sum(self._combining.factors(self._values(name)))
        return "" if abs(total - 1.0) <= NEAR_ONE else f"the factors add up to {total:g}"


def _is_trained(adapter: AdapterChanges, name: str) -> bool:
    """Return whether a whole tensor of an adapter was trained, not copied."""
    settings = adapter.settings
    return name.endswith(".bias") or _is_under(name, settings.modules_to_save)


def _is_under(name: str, modules: Collection[str]) -> bool:
    """Return whether a tensor belongs to a module, given by the ends of the modules' names."""
    return any(f".{module}." in f".{name}" for module in modules)


def _same_type_and_shape(one: Tensor, other: Tensor) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape)
