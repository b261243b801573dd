"""A part of a tensor, as a separate tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Sliced(Tensor):
    """Consecutive elements of another tensor, with their own shape and name.

    Args:
        whole: the tensor that the elements are taken from.
        first: number of the first element in `whole`, flattened.
    """

    whole: Tensor
    first: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], whole: Tensor, first: int = 0) -> Tensor:
        """Return a part of a tensor; the tensor itself if name and shape are the same."""
        if (name, shape) == (whole.name, whole.shape):
            return whole
        return cls(name, whole.dtype, shape, whole, first)

    @property
    def exact(self) -> Tensor:
        exact_whole = self.whole.exact
        return (
            self
            if exact_whole is self.whole
            else replace(self, dtype=exact_whole.dtype, whole=exact_whole)
        )

    def children(self) -> tuple[Tensor, ...]:
        return (self.whole,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [whole] = children
        return replace(self, whole=whole)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield from self.whole.no_longer_read(self.first + start, self.first + stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield from self.whole.reads(self.first + start, self.first + stop)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        self.whole.read(evaluation, self.first + start, self.first + stop, out)

    def as_json(self) -> dict[str, Any]:
        return {"sliced": self.whole.as_json(), "first": self.first, "shape": list(self.shape)}
