"""The output's experts in the form of the reference's files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.experts.separate_experts import Place
from resumerge.experts.views import MixtureViews
from resumerge.layout.expert_names import Template
from resumerge.recipe import ModelRef, Recipe
from resumerge.tensors import Merged
from resumerge.tensors.target import Target


def as_reference(
    recipe: Recipe, targets: Sequence[Target], views: MixtureViews
) -> tuple[list[Target], list[Problem]]:
    """Return the tensors of the output, with experts stored as in the reference's files.

    The matrices of a packed tensor stay separate units, one after the other. The first unit begins
    the tensor, and the later units complete it.

    Returns:
        the tensors, and the problem of a packed tensor whose matrices have different dtypes.
    """
    if views.matrices:
        return [_apart(target, views.matrices) for target in targets], []
    if not views.places:
        return list(targets), []
    groups = _groups(targets, views.places)
    problems = [
        _several_dtypes(recipe, name, group)
        for name, group in groups.items()
        if len({target.dtype for target in group}) > 1
    ]
    return list(_packed(targets, groups, views.places)), problems[:1]


def note_on_packed_files(
    targets: Sequence[Target], views: MixtureViews, reference: ModelRef
) -> list[str]:
    """Return a note if a method's statistics depend on experts being separate matrices."""
    if any(
        isinstance(target.expression, Merged)
        and target.expression.needs_statistics
        and Template.of(target.name).rest in views.places
        for target in targets
    ):
        return [
            f"the files of {reference} have packed experts: each expert is merged by itself, as "
            "where files have them apart; 'experts: together' merges a layer's as one tensor"
        ]
    return []


def _apart(target: Target, matrices: Mapping[str, tuple[str, ...]]) -> Target:
    """Return a target whose packed tensor is stored as separate matrices."""
    template = Template.of(target.name)
    if template.rest not in matrices:
        return target
    names = matrices[template.rest]
    experts, rows, columns = target.shape
    shape = (rows // len(names), columns)
    tensors = {
        replace(template, expert=expert).named(rest): shape
        for expert in range(experts)
        for rest in names
    }
    return replace(target, tensors=tensors)


def _groups(targets: Sequence[Target], places: Mapping[str, Place]) -> dict[str, list[Target]]:
    """Return the matrices of each packed tensor in their order, by the packed tensor's name."""
    targets_by_tensor: dict[str, dict[tuple[int, int], Target]] = defaultdict(dict)
    for target in targets:
        template = Template.of(target.name)
        if place := places.get(template.rest):
            name = template.named(place.packed)
            targets_by_tensor[name][template.expert or 0, place.number] = target
    return {
        name: [group[key] for key in sorted(group)] for name, group in targets_by_tensor.items()
    }


def _packed(
    targets: Sequence[Target], groups: Mapping[str, list[Target]], places: Mapping[str, Place]
) -> Iterator[Target]:
    """Yield the targets, with each group of matrices at the place of its first member."""
    done_names: set[str] = set()
    for target in targets:
        template = Template.of(target.name)
        place = places.get(template.rest)
        if place is None:
            yield target
        elif (name := template.named(place.packed)) not in done_names:
            done_names.add(name)
            first_matrix, *later_matrices = groups[name]
            rows, *columns = first_matrix.shape
            experts = (1 + len(later_matrices)) // place.count
            shape = (experts, place.count * rows, *columns)
            yield replace(first_matrix, tensors={name: shape})
            yield from (replace(matrix, tensors={}) for matrix in later_matrices)


def _several_dtypes(recipe: Recipe, name: str, group: Sequence[Target]) -> Problem:
    dtypes = sorted({target.dtype for target in group})
    return recipe.problem(
        f"The experts in tensor {name} have different dtypes",
        "merge_method",
        expected="one dtype: the experts of a layer are one tensor in the output",
        found=" and ".join(dtypes),
        fix="Add 'dtype: bfloat16', or another one, at the top level",
    )
