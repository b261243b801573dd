"""What every tensor of the algebra is: a name, a dtype, a shape, and what it is computed from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS, nbytes
from resumerge.tensors.evaluation import Evaluation, as_vector

RUN_BYTES = 4 << 20
"""So much of an operand is read, computed and written together, by one call each: between the
calls a thread holds the interpreter's lock. Less under memory pressure."""

PIECE = 1 << 20
"""So many elements are read together where a tensor is wanted as float32."""


@dataclass(frozen=True, eq=False)
class Tensor(ABC):
    """A tensor that is stored, or computed from others: a tree whose leaves are stored.

    Kinds whose fields can be compared are equal where these are; the others are equal to themselves
    alone, as keys of what is held for them.

    Args:
        name: in its model.
        dtype: of its elements, by safetensors' name.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    numel: int = field(init=False, repr=False, compare=False)
    """Number of elements."""
    _widest: int = field(init=False, repr=False, compare=False)
    """Bits of an element of the widest of its nodes."""

    def __post_init__(self) -> None:
        # A model has ten thousands of these: a `cached_property` would give each a dict of its own.
        object.__setattr__(self, "numel", math.prod(self.shape))
        widest = max((child._widest for child in self.children()), default=0)
        object.__setattr__(self, "_widest", max(widest, BITS[self.dtype]))

    @property
    def nbytes(self) -> int:
        """Length of its elements in bytes."""
        return nbytes(self.dtype, self.numel)

    @property
    def unrounded(self) -> Tensor:
        """The tensor before it is rounded as an input of a merge: itself where it is not."""
        return self

    def children(self) -> tuple[Tensor, ...]:
        """What it is computed from."""
        return ()

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        """The same computation of others, in the order of `children`."""
        assert not children
        return self

    @cached_property
    def tree_size(self) -> int:
        """How many nodes it has: what is used twice is computed twice."""
        return 1 + sum(child.tree_size for child in self.children())

    def nodes(self) -> Iterator[Tensor]:
        """Itself and all that it is computed from, what is computed first in front."""
        for child in self.children():
            yield from child.nodes()
        yield self

    def run_blocks(self, block_elements: int, nbytes: int) -> int:
        """How many of its blocks are computed together: at least one.

        Args:
            nbytes: that they may take of the widest tensor that it is computed from.
        """
        return max(1, 8 * nbytes // (self._widest * block_elements))

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """(leaf, first element, one past the last) of what elements ``start:stop`` read, and no
        later element reads, where elements are read in order.
        """
        for child in self.children():
            yield from child.passed(start, stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """(leaf, first element, one past the last) of what `read` reads of elements ``start:stop``,
        in order; without scratch files, and without what is held for all elements.
        """
        for child in self.children():
            yield from child.reads(start, stop)

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Likewise, what is read once, and held for all elements of it."""
        yield from ()

    def working_bytes(self, elements: int) -> float:
        """Bytes of buffers, beside the result, while so many elements of it are read at once."""
        return max((child.working_bytes(elements) for child in self.children()), default=0)

    @abstractmethod
    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        """Compute elements ``start:stop``, the same bits however a tensor is split into ranges.

        Args:
            out: bytes (uint8), as many as the elements have.

        Raises:
            Resumable: a file is missing, shorter than its header says, or not readable.
        """

    def floats(
        self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Elements ``start:stop`` as float32, of a tensor of floats.

        Args:
            out: to be filled with them; by default a new array.

        Raises:
            Resumable: as `read`.
        """
        result = np.empty(stop - start, np.float32) if out is None else out
        for first in range(start, stop, PIECE):
            last = min(first + PIECE, stop)
            data = np.empty(nbytes(self.dtype, last - first), np.uint8)
            self.read(evaluation, first, last, data)
            round_to(as_vector(data, self.dtype), Vector(result[first - start : last - start]))
        return result

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """For the ledger."""
