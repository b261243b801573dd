"""Promise: what a tensor holds from block to block is what it says, and the estimate counts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reading import evaluation, read

from resumerge.tensors import Adapted, Computed, Gathered, Stored, Tensor
from resumerge.tensors.computed import Advance, State
from resumerge.tensors.evaluation import Evaluation, HeldValues
from resumerge.tensors.rows import MEAN, Rows

WIDTH, HEIGHT, RANK = 3, 6, 2


class Zeros:
    """Files of zeros."""

    def descriptor(self, tensor: Any) -> None:
        return None

    def fill(self, tensor: Any, offset: int, buffer: memoryview) -> None:
        np.frombuffer(buffer, np.uint8)[:] = 0


class Recorded(HeldValues):
    """A cache that records the size of each value by its key."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: dict[Hashable, int] = {}

    def get(self, key: Hashable, nbytes: int, make: Callable[[], Any]) -> Any:
        self.asked[key] = nbytes
        return super().get(key, nbytes, make)


def stored(name: str, *shape: int) -> Stored:
    return Stored(name, "F32", shape, "f", 64)


def gathered() -> Tensor:
    none = np.array([], np.int64)
    rows = Rows.of(np.array([0, MEAN]), np.array([0, 0]), 1, (np.array([0]), none, none))
    return Gathered.of("e", (2, WIDTH), (stored("t", HEIGHT, WIDTH),), rows)


def adapted() -> Tensor:
    a, b = stored("a", RANK, WIDTH), stored("b", HEIGHT, RANK)
    return Adapted.of("w", stored("w", HEIGHT, WIDTH), a, b, 1.0, False)


@pytest.mark.parametrize(
    "make", [gathered, pytest.param(adapted, marks=pytest.mark.needs("torch"))]
)
def test_what_is_asked_for_has_the_declared_bytes(make: Callable[[], Tensor]) -> None:
    tensor, held = make(), Recorded()
    computing = evaluation(Zeros())
    computing = replace(computing, held=held)
    read(computing, tensor)
    assert held.asked == {tensor: tensor.held_bytes}
    assert tensor.held_bytes > 0


def test_every_kind_that_holds_a_value_declares_it() -> None:
    """Results of steps are counted with the steps."""
    kinds: list[type[Tensor]] = [Tensor]
    for kind in kinds:
        kinds += kind.__subclasses__()
    holding = {kind for kind in kinds if "evaluation.held" in inspect.getsource(kind)}
    declaring = {kind for kind in kinds if "held_bytes" in vars(kind)}
    assert holding == declaring | {Computed}


def test_what_was_not_asked_for_longest_is_dropped() -> None:
    held, made = HeldValues(2), list[str]()
    for key in "abacab":
        held.get(key, 1, lambda key=key: made.append(key))
    assert "".join(made) == "abcb", "a was asked for again and again"


class Two:
    """A step of one piece, whose result has two parts."""

    nbytes = 2 * 4
    pieces = 1

    def __init__(self) -> None:
        self.done = 0

    def tensors(self, part: int) -> tuple[Tensor, ...]:
        return ()

    def prepare(self, evaluation: Evaluation, threads: int) -> Advance:
        return self._advance

    def begin(self, evaluation: Evaluation) -> State:
        return {}

    def result(self, state: State) -> np.ndarray:
        return state["both"]

    def _advance(self, state: State, piece: int) -> State:
        self.done += 1
        return {"both": np.array([[1], [2]], np.float32)}


def test_a_step_is_done_once_for_all_its_parts() -> None:
    step: Any = Two()
    computing = evaluation(Zeros(), limit=step.nbytes)
    parts = [read(computing, Computed.of("p", (1,), step, part)) for part in (0, 1, 0)]
    assert [np.frombuffer(part, np.float32).item() for part in parts] == [1, 2, 1]
    assert step.done == 1
