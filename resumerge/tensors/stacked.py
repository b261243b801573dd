"""Several tensors as one tensor, which has their elements one tensor after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.tensors.dtypes import BITS, nbytes
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.rounded import Rounded
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Stacked(Tensor):
    """Tensors that are joined one after the other, as along the first axis.

    Args:
        parts: the tensors, all of the same dtype and shape.
    """

    parts: tuple[Tensor, ...]

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], parts: tuple[Tensor, ...]) -> Stacked:
        """Return parts as one tensor, whose shape has as many elements as the parts together."""
        assert math.prod(shape) == sum(part.numel for part in parts)
        return cls(name, parts[0].dtype, shape, parts)

    @property
    def exact(self) -> Tensor:
        exact_parts = [part.exact for part in self.parts]
        widest = max((part.dtype for part in exact_parts), key=BITS.__getitem__)
        if widest == self.dtype:
            return self
        return Stacked.of(self.name, self.shape, tuple(Rounded.of(p, widest) for p in exact_parts))

    def children(self) -> tuple[Tensor, ...]:
        return self.parts

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        return Stacked(self.name, self.dtype, self.shape, children)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for part, part_start, part_end in self._pieces(start, stop):
            yield from part.no_longer_read(part_start, part_end)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        for part, part_start, part_end in self._pieces(start, stop):
            yield from part.reads(part_start, part_end)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        inner_evaluation, position = evaluation.inner(), 0
        for part, part_start, part_end in self._pieces(start, stop):
            size = nbytes(self.dtype, part_end - part_start)
            part.read(inner_evaluation, part_start, part_end, out[position : position + size])
            position += size

    def as_json(self) -> dict[str, Any]:
        return {"stacked": [part.as_json() for part in self.parts], "shape": list(self.shape)}

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of parts that make up elements ``start:stop``.

        Yields:
            (part, first element, one past the last).
        """
        part_elements = self.parts[0].numel
        while start < stop:
            number, begin = divmod(start, part_elements)
            end = min(part_elements, begin + stop - start)
            yield self.parts[number], begin, end
            start += end - begin
