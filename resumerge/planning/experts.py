"""The experts of a layer as one tensor for each projection, as transformers 5 packs them.

On disk each expert has matrices of its own. Loaded, the gates and ups of a layer's experts are one
tensor of the shape (experts, 2 * intermediate, hidden), and the downs are another. Where a recipe
says ``experts: together``, methods that look at whole tensors look at those; a packed tensor is
written as the matrices that it consists of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from resumerge.layout import DOWNS, GATES, UPS
from resumerge.methods import METHODS
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.types import Source
from resumerge.tensors import Stacked, Tensor

_EXPERT = re.compile(r"^(.+)\.experts\.(\d+)\.(\w+)\.weight$")

Matrices = dict[tuple[int, int], Tensor]
"""By number of the expert, and 0, or 1 for an up beside a gate."""


def packed_experts(
    recipe: Recipe, sources: Mapping[ModelRef, Source]
) -> tuple[Mapping[ModelRef, Source], list[str]]:
    """The sources as a recipe wants to see them, and notes."""
    method = METHODS.get(recipe.merge_method)
    if not recipe.experts_together:
        return sources, []
    if method is not None and method.whole_tensor:
        return sources, [f"experts has no effect: {method.name} takes one matrix at a time"]
    packed = {ref: _with_packed_experts(source) for ref, source in sources.items()}
    if all(packed[ref].tensors == source.tensors for ref, source in sources.items()):
        return sources, ["experts has no effect: no layer has its experts in separate matrices"]
    return packed, []


def _with_packed_experts(source: Source) -> Source:
    """A source whose experts are packed, where the experts of a layer are alike."""
    found: dict[str, Matrices] = defaultdict(dict)
    for name, tensor in source.tensors.items():
        expert = _EXPERT.match(name)
        if expert is not None and (place := _place(expert[3])):
            found[f"{expert[1]}.experts.{place[0]}"][int(expert[2]), place[1]] = tensor
    packed = {name: _packed(name, matrices) for name, matrices in found.items()}
    complete = {name: tensor for name, tensor in packed.items() if tensor is not None}
    gone = {member.name for tensor in complete.values() for member in tensor.parts}
    rest = {name: tensor for name, tensor in source.tensors.items() if name not in gone}
    return replace(source, tensors={**rest, **complete})


def unpacked(name: str, template: Tensor) -> Mapping[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a packed tensor of the output is written as.

    Args:
        name: of the packed tensor, in the output.
        template: the tensor that the output's is like; the result is empty where it is not packed.
    """
    if not isinstance(template, Stacked):
        return {}
    ours, theirs = (packed.rpartition(".experts.")[0] for packed in (name, template.name))
    return {ours + member.name.removeprefix(theirs): member.shape for member in template.parts}


def _place(projection: str) -> tuple[str, int] | None:
    """The packed tensor that a projection belongs to, and its place in an expert."""
    if projection in DOWNS:
        return "down_proj", 0
    if projection in (*GATES, *UPS):
        return "gate_up_proj", int(projection in UPS)
    return None


def _packed(name: str, matrices: Matrices) -> Stacked | None:
    """The packed tensor; None where experts or matrices are missing, or not alike."""
    if not any(place == 0 for _, place in matrices):  # ups without gates
        name = name.replace("gate_up_proj", "up_proj")
    experts, places = (sorted({key[k] for key in matrices}) for k in (0, 1))
    members = tuple(matrices[key] for key in sorted(matrices))
    first = members[0]
    alike = all((m.shape, m.dtype) == (first.shape, first.dtype) for m in members)
    complete = experts == [*range(len(experts))] and len(members) == len(experts) * len(places)
    if not alike or not complete or len(first.shape) != 2:
        return None
    rows, columns = first.shape
    shape = (len(experts), len(places) * rows, columns)
    return Stacked.of(name, shape, members)
