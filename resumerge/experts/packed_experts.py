"""The experts of a layer as one tensor for each projection, as transformers 5 packs them.

On disk, each expert has its own matrices. In memory, transformers packs the gates and ups of a
layer's experts into one tensor of the shape (experts, 2 * intermediate, hidden), and the downs into
another. With ``experts: together`` in a recipe, methods that depend on whole tensors work on packed
tensors. The output contains the matrices of a packed tensor, not the packed tensor.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from resumerge.layout import DOWNS, GATES, UPS
from resumerge.layout.expert_names import Template
from resumerge.sources.types import Source
from resumerge.tensors import Stacked, Tensor

_EXPERT = re.compile(r"^(.+)\.experts\.(\d+)\.(\w+)\.weight$")


class _Slot(NamedTuple):
    """The place of an expert's matrix in a packed tensor.

    Args:
        expert: the expert's number in its layer, from 0.
        part: 1 for an up projection, which comes after the gate; 0 for all others.
    """

    expert: int
    part: int


Names = dict[_Slot, str]
"""The names of matrices, by their places in a packed tensor."""


def with_packed_experts(source: Source) -> tuple[Source, dict[str, tuple[str, ...]]]:
    """Return a source with packed experts in layers whose experts have equal shapes and dtypes.

    A packed tensor takes the place of its first matrix in the order of the tensors.

    Returns:
        the source; and the names of an expert's matrices in each packed tensor that this function
        made, by the `rest` of the tensor's `Template`.
    """
    names_by_packed: dict[str, Names] = defaultdict(dict)
    for name in source.tensors:
        expert = _EXPERT.match(name)
        if expert is not None and (place := _place(expert[3])):
            packed_projection, part_number = place
            slot = _Slot(int(expert[2]), part_number)
            names_by_packed[f"{expert[1]}.experts.{packed_projection}"][slot] = name
    packed_by_first: dict[str, Stacked] = {}
    later_members: set[str] = set()
    matrices: dict[str, tuple[str, ...]] = {}
    for packed_name, names in names_by_packed.items():
        member_names = [names[slot] for slot in sorted(names)]
        packed_tensor = _packed(
            packed_name, names, tuple(source.tensors[name] for name in member_names)
        )
        if packed_tensor is not None:
            packed_by_first[member_names[0]] = packed_tensor
            later_members.update(member_names[1:])
            expert_names = [names[slot] for slot in sorted(names) if slot.expert == 0]
            rests_of_expert = tuple(Template.of(name).rest for name in expert_names)
            matrices[Template.of(packed_tensor.name).rest] = rests_of_expert
    tensors: dict[str, Tensor] = {}
    for name, tensor in source.tensors.items():
        if name in packed_by_first:
            tensors[packed_by_first[name].name] = packed_by_first[name]
        elif name not in later_members:
            tensors[name] = tensor
    return replace(source, tensors=tensors), matrices


def _place(projection: str) -> tuple[str, int] | None:
    """Return the packed tensor that a projection belongs to, and the projection's part of it.

    The result is None for any other matrix of an expert.
    """
    if projection in DOWNS:
        return "down_proj", 0
    if projection in (*GATES, *UPS):
        return "gate_up_proj", int(projection in UPS)
    return None


def _packed(name: str, names: Names, members: tuple[Tensor, ...]) -> Stacked | None:
    """Return the packed tensor; None if a matrix is missing, or shapes or dtypes differ."""
    if not any(slot.part == 0 for slot in names):  # ups without gates
        name = name.replace("gate_up_proj", "up_proj")
    experts = sorted({slot.expert for slot in names})
    part_numbers = {slot.part for slot in names}
    first_member = members[0]
    are_alike = all(
        (member.shape, member.dtype) == (first_member.shape, first_member.dtype)
        for member in members
    )
    are_complete = experts == [*range(len(experts))] and len(members) == len(experts) * len(
        part_numbers
    )
    if not are_alike or not are_complete or len(first_member.shape) != 2:
        return None
    rows, columns = first_member.shape
    shape = (len(experts), len(part_numbers) * rows, columns)
    return Stacked.of(name, shape, members)
