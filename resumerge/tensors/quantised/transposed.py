"""The transpose of a small matrix."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.stored import stored_in
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Transposed(Tensor):
    """The transpose of a matrix. It is held in memory while elements are read.

    Args:
        matrix: the matrix, whose elements are whole bytes.
    """

    matrix: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> Transposed:
        """Return the transpose of a matrix."""
        rows, columns = matrix.shape
        return cls(matrix.name, matrix.dtype, (columns, rows), matrix)

    @property
    def held_bytes(self) -> int:
        return self.nbytes

    @property
    def held_in_turn(self) -> Hashable:
        return "transposed", next(stored_in(self.matrix)).source

    def children(self) -> tuple[Tensor, ...]:
        return (self.matrix,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [matrix] = children
        return replace(self, matrix=matrix)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        if stop == self.numel:
            yield from self.matrix.no_longer_read(0, self.numel)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield from ()

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the whole matrix."""
        yield from self.matrix.reads(0, self.numel)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        transposed_bytes = evaluation.held.get(
            self, self.held_bytes, lambda: self._whole(evaluation)
        )
        width = BITS[self.dtype] // 8
        out[:] = transposed_bytes[start * width : stop * width]

    def as_json(self) -> dict[str, Any]:
        return {"transposed": self.matrix.as_json()}

    def _whole(self, evaluation: Evaluation) -> np.ndarray:
        """Return the bytes (uint8) of the whole transpose."""
        raw = np.empty(self.nbytes, np.uint8)
        self.matrix.read(evaluation.inner(), 0, self.numel, raw)
        elements = raw.view(f"u{BITS[self.dtype] // 8}").reshape(self.matrix.shape)
        return np.ascontiguousarray(elements.T).reshape(-1).view(np.uint8)
