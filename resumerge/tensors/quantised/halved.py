"""A matrix with its rows reordered: in each group, even rows come before odd rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Halved(Tensor):
    """Rows in groups. In each group, the operand's even rows come first, and then its odd rows.

    Rotary embeddings rotate pairs of numbers. In llama.cpp, the two rows of a pair are neighbours.
    In transformers, they are half a head apart.

    Args:
        operand: the tensor as it is stored, whose elements are whole bytes.
        group: the number of rows of a group, which is even.
    """

    operand: Tensor
    group: int

    @classmethod
    def of(cls, operand: Tensor, group: int) -> Halved:
        """Return a tensor with the even and the odd rows of each group separated."""
        assert group % 2 == 0 and operand.shape[0] % group == 0
        return cls(operand.name, operand.dtype, operand.shape, operand, group)

    def children(self) -> tuple[Tensor, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [operand] = children
        return replace(self, operand=operand)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        group_elements = max(1, self.group * self._columns)
        yield from self.operand.no_longer_read(
            start // group_elements * group_elements, stop // group_elements * group_elements
        )

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for _, _, operand_start, operand_end in self._pieces(start, stop):
            yield from self.operand.reads(operand_start, operand_end)

    def working_bytes(self, elements: int) -> float:
        most_elements = min(2 * elements + 2 * self._columns, self.group * self._columns)
        return most_elements * (BITS[self.dtype] // 8) + self.operand.working_bytes(most_elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        inner_evaluation, columns, width = evaluation.inner(), self._columns, BITS[self.dtype] // 8
        target = out.view(f"u{width}")
        for begin, end, operand_start, operand_end in self._pieces(start, stop):
            raw = evaluation.take("halved", (operand_end - operand_start) * width)
            self.operand.read(inner_evaluation, operand_start, operand_end, raw)
            rows = raw.view(f"u{width}").reshape(-1, columns)[::2]
            top = begin // columns * columns
            if rows.size == end - begin:
                target[begin - start : end - start].reshape(rows.shape)[:] = rows
            else:
                target[begin - start : end - start] = rows.reshape(-1)[begin - top : end - top]

    def as_json(self) -> dict[str, Any]:
        return {"halved": self.operand.as_json(), "group": self.group}

    @property
    def _columns(self) -> int:
        return self.numel // max(1, self.shape[0])

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the pieces of elements ``start:stop`` that are each in one half of a group.

        Yields:
            (first element, one past the last, first element in the operand, one past the last in
            the operand).
        """
        columns, half_rows = self._columns, self.group // 2
        while start < stop:
            number, row = divmod(start // columns, half_rows)
            end = min(stop, (number + 1) * half_rows * columns)
            group_number, odd_offset = divmod(number, 2)
            rows = -(-end // columns) - start // columns
            first_row = group_number * self.group + 2 * row + odd_offset
            yield start, end, first_row * columns, (first_row + 2 * rows - 1) * columns
            start = end
