"""The groups that tensors are added up by: layers, and kinds of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable

from resumerge.layout.names import before_layers, split

LayerKey = tuple[int, str, int]
"""A key that sorts layers as a model has them: before, inside or after the stacks; stack; number.

For a tensor outside every stack, the second part is its name.
"""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_SUFFIX = re.compile(r"\.weight$")


def layer_key(tensor: str) -> LayerKey:
    """Return the key of a tensor's layer; a tensor outside the layers is one of its own."""
    place = split(tensor)
    if place is None:
        return (0 if before_layers(tensor) else 2), _SUFFIX.sub("", tensor), 0
    return 1, place.stack, place.index


def layer_names(keys: Iterable[LayerKey]) -> dict[LayerKey, str]:
    """Return the names of layers, in the order of the model; numbers where there is one stack."""
    ordered = sorted(set(keys))
    alone = len({stack for where, stack, _ in ordered if where == 1}) == 1
    return {key: _name(key, alone=alone) for key in ordered}


def kind_of(tensor: str) -> str:
    """Return the name that a tensor shares with those of the other layers and experts."""
    place = split(tensor)
    return _SUFFIX.sub("", _NUMBER.sub("*", place.rest if place else tensor))


def _name(key: LayerKey, *, alone: bool) -> str:
    where, name, index = key
    if where != 1:
        return name
    return str(index) if alone else f"{name}.{index}"
