"""The groups in which figures of tensors are summed: layers, and kinds of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable

from resumerge.layout.names import before_layers, split

LayerKey = tuple[int, str, int]
"""A key that sorts layers in the model's order: (0, 1 or 2, name of the stack, layer number).

The first number is 0 before, 1 inside, and 2 after the stacks. For a tensor outside every stack,
the second part is the tensor's name.
"""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_SUFFIX = re.compile(r"\.weight$")


def layer_key(tensor: str) -> LayerKey:
    """Return the key of a tensor's layer. A tensor outside the layers has its own key."""
    place = split(tensor)
    if place is None:
        return (0 if before_layers(tensor) else 2), _SUFFIX.sub("", tensor), 0
    return 1, place.stack, place.index


def layer_names(keys: Iterable[LayerKey]) -> dict[LayerKey, str]:
    """Return the names of layers in the order of the model; just numbers if it has one stack."""
    ordered = sorted(set(keys))
    alone = len({stack for where, stack, _ in ordered if where == 1}) == 1
    return {key: _name(key, alone=alone) for key in ordered}


def kind_of(tensor: str) -> str:
    """Return the name that a tensor shares with its counterparts in other layers and experts."""
    place = split(tensor)
    return _SUFFIX.sub("", _NUMBER.sub("*", place.rest if place else tensor))


def _name(key: LayerKey, *, alone: bool) -> str:
    where, name, index = key
    if where != 1:
        return name
    return str(index) if alone else f"{name}.{index}"
