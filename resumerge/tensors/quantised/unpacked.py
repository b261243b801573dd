"""A matrix of whole numbers that lie packed in wider ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.stored import stored_in
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Unpacked(Tensor):
    """Whole numbers of a few bits each as bytes, in the order of a weight's elements.

    The packed matrix is held in memory while elements are read: where a weight is stored
    transposed, each row needs a part of every packed row.

    Args:
        packed: a matrix of I32 or U8.
        bits: the bits of a number.
        along: the dimension of the packed matrix (0 or 1) whose neighbours lie in one element.
        order: the place of each number among those of its packed element, the lowest bits first.
        transposed: whether a row of this tensor is a column of what is unpacked.
        added: what is added to each number, of which as many bits are kept.
    """

    packed: Tensor
    bits: int
    along: int
    order: tuple[int, ...]
    transposed: bool
    added: int = 0

    @property
    def held_bytes(self) -> int:
        return self.packed.nbytes

    @property
    def held_in_turn(self) -> Hashable:
        return "packed", next(stored_in(self.packed)).source

    def children(self) -> tuple[Tensor, ...]:
        return (self.packed,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [packed] = children
        return replace(self, packed=packed)

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if stop == self.numel:
            yield from self.packed.passed(0, self.packed.numel)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield from ()

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the whole packed matrix."""
        yield from self.packed.reads(0, self.packed.numel)

    def working_bytes(self, elements: int) -> float:
        rows = elements // max(1, self.shape[1]) + 2 * len(self.order)
        return 3 * rows * self.shape[1] * self.packed.nbytes // max(1, self.packed.numel)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        columns = self.shape[1]
        if start == stop:
            return
        held = evaluation.held.get(self, self.held_bytes, lambda: self._whole(evaluation))
        top, bottom = start // columns, -(-stop // columns)
        rows = self._rows(held, top, bottom).reshape(-1)
        out[:] = rows[start - top * columns : stop - top * columns]

    def as_json(self) -> dict[str, Any]:
        return {
            "unpacked": self.packed.as_json(),
            "bits": self.bits,
            "along": self.along,
            "order": list(self.order),
            "transposed": self.transposed,
            "added": self.added,
        }

    def _rows(self, packed: np.ndarray, top: int, bottom: int) -> np.ndarray:
        """Return rows ``top:bottom`` as uint8."""
        matrix, along = packed, self.along
        if self.transposed:
            matrix, along = packed.T, 1 - along
        count = len(self.order)
        first = top if along else top // count * count
        matrix = matrix[first:bottom] if along else matrix[first // count : -(-bottom // count)]
        shifts = np.array(self.order, matrix.dtype) * matrix.dtype.type(self.bits)
        numbers = (matrix[:, :, None] >> shifts) + matrix.dtype.type(self.added)
        numbers &= matrix.dtype.type((1 << self.bits) - 1)
        narrow: np.ndarray = numbers.astype(np.uint8)
        if along:
            wide: np.ndarray = narrow.reshape(len(narrow), -1)
            return wide[:, : self.shape[1]]
        rows: np.ndarray = narrow.transpose(0, 2, 1).reshape(-1, narrow.shape[1])
        return rows[top - first : bottom - first]

    def _whole(self, evaluation: Evaluation) -> np.ndarray:
        raw = np.empty(self.packed.nbytes, np.uint8)
        self.packed.read(evaluation.inner(), 0, self.packed.numel, raw)
        kind = np.uint32 if self.packed.dtype == "I32" else np.uint8
        return raw.view(kind).reshape(self.packed.shape)
