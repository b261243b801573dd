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
    numbered_name = split(tensor)
    if numbered_name is None:
        return (0 if before_layers(tensor) else 2), _SUFFIX.sub("", tensor), 0
    return 1, numbered_name.stack, numbered_name.index


def layer_names(keys: Iterable[LayerKey]) -> dict[LayerKey, str]:
    """Return the names of layers in the order of the model; just numbers if it has one stack."""
    ordered_keys = sorted(set(keys))
    has_one_stack = len({stack for position, stack, _ in ordered_keys if position == 1}) == 1
    return {key: _name(key, alone=has_one_stack) for key in ordered_keys}


def kind_of(tensor: str) -> str:
    """Return the name that a tensor shares with its counterparts in other layers and experts."""
    numbered_name = split(tensor)
    return _SUFFIX.sub("", _NUMBER.sub("*", numbered_name.rest if numbered_name else tensor))


def _name(key: LayerKey, *, alone: bool) -> str:
    position, name, index = key
    if position != 1:
        return name
    return str(index) if alone else f"{name}.{index}"
