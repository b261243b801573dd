"""Tensors that are results of a step: work that reads whole operands instead of ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.errors import Problem
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor

State = Mapping[str, np.ndarray]
"""The result of the finished pieces of a step: arrays, by name."""

Advance = Callable[[State, int], State]
"""A function that computes one piece of a step.

Its arguments are the state before the piece, which it may change, and the piece's number. It
returns the state after the piece.
"""


class Step(ABC):
    """Work that is done before all blocks, in pieces. Each piece continues the previous piece."""

    title: str
    """A description of the work, for the user."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A text that identifies the result: all that it depends on, except elements of tensors."""

    @property
    @abstractmethod
    def libraries(self) -> Mapping[str, str]:
        """The versions of the libraries that the bits of the result depend on, by name."""

    @property
    @abstractmethod
    def pieces(self) -> int:
        """The number of pieces."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes of the result."""

    @property
    @abstractmethod
    def planning_bytes(self) -> int:
        """The bytes that planning the step needed. They are freed before the first piece."""

    @abstractmethod
    def working_bytes(self, threads: int) -> int:
        """Return the bytes that a piece and its libraries need with this number of threads."""

    @abstractmethod
    def seconds(self, threads: int) -> float:
        """Return the seconds to load the libraries and compute all pieces, without reading.

        Args:
            threads: number of threads, each on its own core.
        """

    @abstractmethod
    def tensors(self, part: int) -> tuple[Tensor, ...]:
        """Return the tensors that a part of the result is computed from."""

    def reads(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of leaves that the step reads.

        Yields:
            (leaf, first element, one past the last).
        """
        for tensor in self.tensors(self.pieces):
            yield from tensor.reads(0, tensor.numel)

    @abstractmethod
    def prepare(self, evaluation: Evaluation, threads: int) -> Advance:
        """Import the libraries that the step needs, and return the function that computes a piece.

        The bits of the result do not depend on `threads`.
        """

    @abstractmethod
    def begin(self, evaluation: Evaluation) -> State:
        """Return the state before the first piece."""

    @abstractmethod
    def result(self, state: State) -> np.ndarray:
        """Return the result (float32), by part, from the state after the last piece."""

    def problems(self) -> Iterator[Problem]:
        """Yield the reasons why the step cannot be done, as far as file headers show them."""
        yield from ()

    def notes(self, result: np.ndarray) -> Iterator[str]:
        """Yield notes on the result for the user."""
        yield from ()


@dataclass(frozen=True, eq=False)
class Computed(Tensor):
    """A part of a step's result, in float32.

    A run computes the step before the blocks, and keeps the result. In an evaluation that does not
    hold the result, the first block computes the step.
    """

    step: Step
    part: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], step: Step, part: int) -> Computed:
        """Return a part of the result of a step, as a tensor of a shape."""
        return cls(name, "F32", shape, step, part)

    @property
    def uses_torch(self) -> bool:
        """Whether the step computes with torch."""
        return "torch" in self.step.libraries

    def children(self) -> tuple[Tensor, ...]:
        return self.step.tensors(self.part)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        raise NotImplementedError("a step is bound to its tensors")

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield no range: the step has already read its tensors."""
        yield from ()

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield no range: the step has already read its tensors."""
        yield from ()

    def working_bytes(self, elements: int) -> float:
        return 0

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        step = self.step
        step_result = evaluation.held.get(step, step.nbytes, lambda: _all_pieces(step, evaluation))
        out.view(np.float32)[:] = step_result[self.part].reshape(-1)[start:stop]

    def as_json(self) -> dict[str, Any]:
        return {"step": self.step.key, "part": self.part, "shape": list(self.shape)}


def steps_of(tensor: Tensor) -> set[Step]:
    """Return the steps in the tree of a tensor."""
    return {node.step for node in tensor.nodes() if isinstance(node, Computed)}


def _all_pieces(step: Step, evaluation: Evaluation) -> np.ndarray:
    inner_evaluation = evaluation.inner()
    advance, state = step.prepare(inner_evaluation, 1), step.begin(inner_evaluation)
    for piece in range(step.pieces):
        state = advance(state, piece)
    return step.result(state)
