"""The way round in which a module's weight is stored: (out, in), or (in, out) like a Conv1D's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensors import Tensor

_NUMBER = re.compile(r"\.\d+\.")


class Orientations:
    """The orientations of the weights of one model, which follow from biases.

    A bias has an element for each output, so that the bias of a weight that is not square tells
    which axis counts outputs. A square weight is stored like the other weights of its stack.

    Args:
        tensors: the model's tensors.
        default: the answer where no bias decides (``fan_in_fan_out`` of the adapter).
    """

    def __init__(self, tensors: Mapping[str, Tensor], default: bool) -> None:
        self._tensors = tensors
        self._default = default
        self._of_stacks: dict[str, bool | None] = {}

    def is_transposed(self, name: str) -> bool:
        """Return whether a square weight is stored as (in, out).

        Args:
            name: the weight's name, as the model's files have it.
        """
        if is_embedding(name):
            return True
        stack = _stack(name)
        if stack is None or is_head(name):
            return False
        if stack not in self._of_stacks:
            self._of_stacks[stack] = self._is_stack_transposed(stack)
        transposed = self._of_stacks[stack]
        return self._default if transposed is None else transposed

    def _is_stack_transposed(self, stack: str) -> bool | None:
        """Return whether a stack's weights are transposed; None if biases give no clear answer."""
        found = set(self._by_biases(stack))
        return found.pop() if len(found) == 1 else None

    def _by_biases(self, stack: str) -> Iterator[bool]:
        """Yield whether each weight of a stack that is not square and has a bias is transposed."""
        for name, weight in self._tensors.items():
            bias = self._tensors.get(f"{name.removesuffix('.weight')}.bias")
            transposed = transposed_by(bias, weight)
            if transposed is not None and _stack(name) == stack:
                yield transposed


def transposed_by(bias: Tensor | None, weight: Tensor) -> bool | None:
    """Return whether a bias says that a weight is stored as (in, out); None if it says nothing."""
    square = len(weight.shape) != 2 or weight.shape[0] == weight.shape[1]
    if bias is None or square or len(bias.shape) != 1 or bias.numel not in weight.shape:
        return None
    return bias.numel == weight.shape[1]


def _stack(name: str) -> str | None:
    found = _NUMBER.search(name)
    return name[: found.start()] if found else None
