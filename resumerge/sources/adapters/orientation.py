"""The way round in which a module's weight is stored: (out, in), or (in, out) like a Conv1D's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensors import Tensor

_NUMBER = re.compile(r"\.\d+\.")


class Orientations:
    """The orientations of the weights of one model, told by their biases.

    A bias has an element for each output, so a weight that is not square and has one tells which
    axis counts outputs; a square one is stored as the others of its stack of layers are.

    Args:
        tensors: the model's tensors.
        unsaid: the answer where no weight tells (``fan_in_fan_out`` of the adapter).
    """

    def __init__(self, tensors: Mapping[str, Tensor], unsaid: bool) -> None:
        self._tensors = tensors
        self._unsaid = unsaid
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
            self._of_stacks[stack] = self._told(stack)
        told = self._of_stacks[stack]
        return self._unsaid if told is None else told

    def _told(self, stack: str) -> bool | None:
        """Return what the weights of a stack tell; None if they contradict each other, or none."""
        said = set(self._sayings(stack))
        return said.pop() if len(said) == 1 else None

    def _sayings(self, stack: str) -> Iterator[bool]:
        for name, weight in self._tensors.items():
            bias = self._tensors.get(f"{name.removesuffix('.weight')}.bias")
            square = len(weight.shape) != 2 or weight.shape[0] == weight.shape[1]
            if bias is None or square or _stack(name) != stack or len(bias.shape) != 1:
                continue
            if bias.numel in weight.shape:
                yield bias.numel == weight.shape[1]


def _stack(name: str) -> str | None:
    found = _NUMBER.search(name)
    return name[: found.start()] if found else None
