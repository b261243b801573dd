"""The experts of a layer as one tensor for each projection, as transformers 5 packs them.

On disk each expert has matrices of its own. Loaded, the gates and ups of a layer's experts are one
tensor of the shape (experts, 2 * intermediate, hidden), and the downs are another. Where a recipe
says ``experts: together``, methods that look at whole tensors look at packed tensors. A packed
tensor is written as the matrices that it consists of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from resumerge.layout import DOWNS, GATES, UPS
from resumerge.layout.expert_names import Template
from resumerge.sources.types import Source
from resumerge.tensors import Stacked, Tensor

_EXPERT = re.compile(r"^(.+)\.experts\.(\d+)\.(\w+)\.weight$")

Names = dict[tuple[int, int], str]
"""The names of matrices, by the expert's number and 0, or 1 for an up beside a gate."""


def with_packed_experts(source: Source) -> tuple[Source, dict[str, tuple[str, ...]]]:
    """Return a source whose experts are packed, where the experts of a layer are alike.

    A packed tensor takes the place of its first matrix in the order of the tensors.

    Returns:
        the source; and for each packed tensor that is not one in its files, by the `rest` of its
        `Template`, the names of an expert's matrices.
    """
    found: dict[str, Names] = defaultdict(dict)
    for name in source.tensors:
        expert = _EXPERT.match(name)
        if expert is not None and (place := _place(expert[3])):
            found[f"{expert[1]}.experts.{place[0]}"][int(expert[2]), place[1]] = name
    first: dict[str, Stacked] = {}
    gone: set[str] = set()
    written: dict[str, tuple[str, ...]] = {}
    for packed_name, names in found.items():
        members = [names[key] for key in sorted(names)]
        packed = _packed(packed_name, names, tuple(source.tensors[name] for name in members))
        if packed is not None:
            first[members[0]] = packed
            gone.update(members[1:])
            of_expert = [names[key] for key in sorted(names) if key[0] == 0]
            rests = tuple(Template.of(name).rest for name in of_expert)
            written[Template.of(packed.name).rest] = rests
    tensors: dict[str, Tensor] = {}
    for name, tensor in source.tensors.items():
        if name in first:
            tensors[first[name].name] = first[name]
        elif name not in gone:
            tensors[name] = tensor
    return replace(source, tensors=tensors), written


def _place(projection: str) -> tuple[str, int] | None:
    """Return the packed tensor that a projection belongs to, and its place in an expert."""
    if projection in DOWNS:
        return "down_proj", 0
    if projection in (*GATES, *UPS):
        return "gate_up_proj", int(projection in UPS)
    return None


def _packed(name: str, names: Names, members: tuple[Tensor, ...]) -> Stacked | None:
    """Return the packed tensor; None if experts or matrices are missing, or have other shapes."""
    if not any(place == 0 for _, place in names):  # ups without gates
        name = name.replace("gate_up_proj", "up_proj")
    experts, places = (sorted({key[k] for key in names}) for k in (0, 1))
    first = members[0]
    alike = all((m.shape, m.dtype) == (first.shape, first.dtype) for m in members)
    complete = experts == [*range(len(experts))] and len(members) == len(experts) * len(places)
    if not alike or not complete or len(first.shape) != 2:
        return None
    rows, columns = first.shape
    shape = (len(experts), len(places) * rows, columns)
    return Stacked.of(name, shape, members)
