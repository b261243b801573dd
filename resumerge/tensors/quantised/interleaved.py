"""A matrix with its rows reordered: in each group, rows of the two halves alternate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Interleaved(Tensor):
    """Rows in groups. Rows of a group's first half alternate with rows of its second half.

    This order undoes `Halved`. If a range cuts a group, the whole group is read, in order.

    Args:
        operand: the tensor, whose elements are whole bytes.
        group: the number of rows of a group, which is even.
    """

    operand: Tensor
    group: int

    @classmethod
    def of(cls, operand: Tensor, group: int) -> Interleaved:
        """Return a tensor with the rows of the two halves of each group alternating."""
        assert group % 2 == 0 and operand.shape[0] % group == 0
        return cls(operand.name, operand.dtype, operand.shape, operand, group)

    @property
    def group_elements(self) -> int:
        """The number of elements of a group, at least 1."""
        return max(1, self.group * (self.numel // max(1, self.shape[0])))

    def children(self) -> tuple[Tensor, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [operand] = children
        return replace(self, operand=operand)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        size = self.group_elements
        yield from self.operand.no_longer_read(start // size * size, stop // size * size)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if start < stop:
            size = self.group_elements
            yield from self.operand.reads(
                start // size * size,
                -(-stop // size) * size,
            )

    def working_bytes(self, elements: int) -> float:
        most_elements = min(self.numel, elements + 2 * self.group_elements)
        return 2 * most_elements * (BITS[self.dtype] // 8) + self.operand.working_bytes(
            most_elements
        )

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        if start == stop:
            return
        width, size = BITS[self.dtype] // 8, self.group_elements
        groups_start, groups_end = start // size * size, -(-stop // size) * size
        raw = evaluation.take("in order", (groups_end - groups_start) * width)
        self.operand.read(evaluation.inner(), groups_start, groups_end, raw)
        halves = raw.view(f"u{width}").reshape(-1, 2, self.group // 2, size // self.group)
        rows = halves.swapaxes(1, 2)
        target = out.view(f"u{width}")
        if len(target) == groups_end - groups_start:
            target.reshape(rows.shape)[:] = rows
        else:
            target[:] = rows.reshape(-1)[start - groups_start : stop - groups_start]

    def as_json(self) -> dict[str, Any]:
        return {"interleaved": self.operand.as_json(), "group": self.group}
