"""The check that each model of a flat merge has a tensor that is merged with another model's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from resumerge.errors import Problem
from resumerge.layout import listed
from resumerge.planning.plan import Unshared
from resumerge.planning.tensor_specs import TensorSpec
from resumerge.planning.whole_numbers import chosen_input
from resumerge.recipe import ModelRef, Recipe
from resumerge.tensors import Tensor

TRIED = 5
"""The number of a model's tensor names that are tried to find a prefix in another model."""


def without_part(
    recipe: Recipe,
    tensors: Mapping[ModelRef, Mapping[str, Tensor]],
    specs: Iterable[TensorSpec],
    unshared: Unshared,
) -> Iterator[Problem]:
    """Yield a problem for each model without a tensor that is merged with another model's.

    Args:
        recipe: the recipe of the flat merge, for the file and line of problems.
        tensors: the tensors of each model that is merged.
        specs: every tensor of the output, with the inputs that it is made from.
        unshared: the treatment of tensors that only some models have. If they are refused, a tensor
            that two models have counts as merged, because an option would keep it.
    """
    if len(tensors) == 1:
        return
    models_by_name: dict[str, list[ModelRef]] = {
        spec.name: [input_.model for input_ in spec.slice_.inputs] for spec in specs if spec.module
    }
    if unshared is Unshared.REFUSED:
        all_names = dict.fromkeys(
            name for model_tensors in tensors.values() for name in model_tensors
        )
        models_by_name = {
            name: [ref for ref, model_tensors in tensors.items() if name in model_tensors]
            for name in all_names
        }
    merged_refs: set[ModelRef] = set()
    for name, refs in models_by_name.items():
        if len(refs) > 1 and chosen_input([tensors[ref][name] for ref in refs], 0) is None:
            merged_refs.update(refs)
    for ref in tensors:
        if ref not in merged_refs:
            yield recipe.problem(
                f"No tensor of {ref} would be merged with another model's",
                "models",
                expected="weights of the same names in other models: none has a config.json",
                found="; ".join(
                    f"{other_ref} has {listed(model_tensors)}"
                    for other_ref, model_tensors in tensors.items()
                ),
                fix=_advice(ref, tensors),
            )


def _advice(ref: ModelRef, tensors: Mapping[ModelRef, Collection[str]]) -> str:
    for other_ref in tensors:
        for shorter, longer in ((ref, other_ref), (other_ref, ref)):
            prefix = prefix_between(tensors[shorter], tensors[longer]) if ref != other_ref else ""
            if prefix:
                return (
                    f"The names in {longer} are those in {shorter} with {prefix!r} before them: "
                    "save one of the two under the names of the other"
                )
    return "Merge models of the same architecture, or leave this one out"


def prefix_between(shorter: Collection[str], longer: Collection[str]) -> str:
    """Return the prefix that turns most of the shorter names into longer ones; empty if none does.

    Args:
        shorter: the tensor names of one model, without the prefix.
        longer: the tensor names of another model, which may begin with the prefix.
    """
    for name in list(shorter)[:TRIED]:
        for long_name in longer:
            prefix = long_name.removesuffix(f".{name}") + "."
            if prefix + name == long_name and 2 * sum(prefix + n in longer for n in shorter) > len(
                shorter
            ):
                return prefix
    return ""
