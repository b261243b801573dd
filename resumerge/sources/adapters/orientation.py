"""The orientation in which a module's weight is stored: (out, in), or (in, out) as in a Conv1D."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensors import Tensor

_NUMBER = re.compile(r"\.\d+\.")


class Orientations:
    """The orientations of the weights of one model, derived from biases.

    A bias has one element for each output. If its weight is not square, the length of the bias
    shows which axis counts outputs. A square weight is stored like the other weights of its stack.

    Args:
        tensors: the model's tensors, by name.
        default: the orientation if no bias decides (``fan_in_fan_out`` of the adapter): True for
            (in, out).
    """

    def __init__(self, tensors: Mapping[str, Tensor], default: bool) -> None:
        self._tensors = tensors
        self._default = default
        self._of_stacks: dict[str, bool | None] = {}

    def is_transposed(self, name: str) -> bool:
        """Return whether a square weight is stored as (in, out).

        Args:
            name: the weight's name in the model's files.
        """
        if is_embedding(name):
            return True
        stack = _stack(name)
        if stack is None or is_head(name):
            return False
        if stack not in self._of_stacks:
            self._of_stacks[stack] = self._is_stack_transposed(stack)
        is_stack_transposed = self._of_stacks[stack]
        return self._default if is_stack_transposed is None else is_stack_transposed

    def _is_stack_transposed(self, stack: str) -> bool | None:
        """Return whether a stack's weights are transposed; None if its biases do not decide."""
        orientations = set(self._by_biases(stack))
        return orientations.pop() if len(orientations) == 1 else None

    def _by_biases(self, stack: str) -> Iterator[bool]:
        """Yield the orientation of each weight of a stack that its bias decides."""
        for name, weight in self._tensors.items():
            bias = self._tensors.get(f"{name.removesuffix('.weight')}.bias")
            is_weight_transposed = transposed_by(bias, weight)
            if is_weight_transposed is not None and _stack(name) == stack:
                yield is_weight_transposed


def transposed_by(bias: Tensor | None, weight: Tensor) -> bool | None:
    """Return whether a weight is stored as (in, out), by its bias; None if this is unclear."""
    is_undecidable = len(weight.shape) != 2 or weight.shape[0] == weight.shape[1]
    if bias is None or is_undecidable or len(bias.shape) != 1 or bias.numel not in weight.shape:
        return None
    return bias.numel == weight.shape[1]


def _stack(name: str) -> str | None:
    number = _NUMBER.search(name)
    return name[: number.start()] if number else None
