"""A tensor that is a result of a step: of work that is no function of ranges of its operands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.errors import Problem
from resumerge.tensors.base import Tensor
from resumerge.tensors.evaluation import Evaluation

State = Mapping[str, np.ndarray]
"""What a step knows between two pieces of its work: arrays by name."""

Advance = Callable[[State, int], State]
"""Does a piece of the work, by its number: the state after it, from that before it, which it may
change."""


class Step(ABC):
    """Work in pieces, each of which continues what the one before has left."""

    title: str
    """What is computed, for a person."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Names everything that decides the result, but for the tensors' elements."""

    @property
    @abstractmethod
    def libraries(self) -> Mapping[str, str]:
        """The versions of the libraries that decide the bits of the result."""

    @property
    @abstractmethod
    def pieces(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Of the result."""

    @property
    @abstractmethod
    def planning_bytes(self) -> int:
        """What it took to find what it is made of, given back before the first piece."""

    @abstractmethod
    def working_bytes(self, threads: int) -> int:
        """That a piece takes with so many threads, and the libraries that it needs."""

    @abstractmethod
    def seconds(self, threads: int) -> float:
        """To load the libraries and to compute all pieces, on as many cores; without reading."""

    @abstractmethod
    def tensors(self, part: int) -> tuple[Tensor, ...]:
        """What a part of the result is computed from."""

    def reads(self) -> Iterator[tuple[Tensor, int, int]]:
        """(leaf, first element, one past the last) of what it reads."""
        for tensor in self.tensors(self.pieces):
            yield from tensor.reads(0, tensor.numel)

    @abstractmethod
    def prepare(self, evaluation: Evaluation, threads: int) -> Advance:
        """Import the libraries that it needs; what does the work with them, to the same bits
        whatever the number of threads.
        """

    @abstractmethod
    def begin(self, evaluation: Evaluation) -> State:
        """The state before the first piece."""

    @abstractmethod
    def result(self, state: State) -> np.ndarray:
        """The parts of the result, float32, from the state after the last piece."""

    def problems(self) -> Iterator[Problem]:
        """Why it cannot be done, as far as can be told without reading tensors."""
        yield from ()

    def notes(self, result: np.ndarray) -> Iterator[str]:
        """What a person should know of the result."""
        yield from ()


@dataclass(frozen=True, eq=False)
class Computed(Tensor):
    """A part of a step's result, in float32.

    A run does a step before it computes blocks, and keeps the result. Without that the first block
    does it.
    """

    step: Step
    part: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], step: Step, part: int) -> Computed:
        """A part of a result, of this shape."""
        return cls(name, "F32", shape, step, part)

    def children(self) -> tuple[Tensor, ...]:
        return self.step.tensors(self.part)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        raise NotImplementedError("a step is bound to its tensors")

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Nothing: the step has read what it needs."""
        yield from ()

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Nothing: likewise."""
        yield from ()

    def working_bytes(self, elements: int) -> float:
        return 0

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        step = self.step
        result = evaluation.held.get(step, step.nbytes, lambda: _all_pieces(step, evaluation))
        out.view(np.float32)[:] = result[self.part].reshape(-1)[start:stop]

    def as_json(self) -> dict[str, Any]:
        return {"step": self.step.key, "part": self.part, "shape": list(self.shape)}


def steps_of(tensor: Tensor) -> set[Step]:
    """The steps that a tensor needs."""
    return {node.step for node in tensor.nodes() if isinstance(node, Computed)}


def _all_pieces(step: Step, evaluation: Evaluation) -> np.ndarray:
    inner = evaluation.inner()
    advance, state = step.prepare(inner, 1), step.begin(inner)
    for piece in range(step.pieces):
        state = advance(state, piece)
    return step.result(state)
