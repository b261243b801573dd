"""What every tensor of the algebra is: a name, a dtype, a shape, and what it is computed from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from resumerge.kernels import round_to
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS, nbytes
from resumerge.tensors.evaluation import Evaluation, as_vector

PIECE_ELEMENTS = 1 << 20
"""Elements that are read together where a tensor is wanted as float32."""


@dataclass(frozen=True, eq=False)
class Tensor(ABC):
    """A tensor that is stored, or computed from others: a tree whose leaves are stored.

    Tensors of a kind whose fields can be compared are equal if their fields are. Tensors of the
    other kinds are equal to themselves alone, since values are held for them by identity.

    Args:
        name: the tensor's name in its model.
        dtype: the elements' type, by safetensors' name.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    numel: int = field(init=False, repr=False, compare=False)
    """The number of elements."""
    _widest: int = field(init=False, repr=False, compare=False)
    """The bits of an element of the widest tensor in the tree."""

    def __post_init__(self) -> None:
        # A model has ten thousands of these: a `cached_property` would give each a dict of its own.
        object.__setattr__(self, "numel", math.prod(self.shape))
        widest = BITS[self.dtype]
        for child in self.children():
            widest = max(widest, child._widest)
        object.__setattr__(self, "_widest", widest)

    @property
    def nbytes(self) -> int:
        """The length of the elements in bytes."""
        return nbytes(self.dtype, self.numel)

    @property
    def uses_torch(self) -> bool:
        """Whether a method or a step computes the tensor with torch, which it can do on a GPU."""
        return False

    @property
    def needs_torch(self) -> bool:
        """Whether torch has to be loaded for the tensor: that takes a second, and 200 MB."""
        return self.uses_torch

    @property
    def unrounded(self) -> Tensor:
        """The tensor before a merge rounds it as an input; by default the tensor itself."""
        return self

    @property
    def exact(self) -> Tensor:
        """The tensor as a merge takes it: before its model rounds it to the type of its files.

        By default the tensor itself; another if an adapter makes it, in float32 or wider.
        """
        return self

    @property
    def compared_models(self) -> tuple[str, ...]:
        """The models of a tensor whose changes are measured, as text; none if none are.

        The first one is the model that changes are counted from.
        """
        return ()

    @property
    def scheme_measured(self) -> tuple[str, int]:
        """The scheme that a measured tensor is quantised in, and the number of its elements.

        By default no scheme (an empty name), and 0: the elements are those of the tensor itself.
        """
        return "", 0

    def children(self) -> tuple[Tensor, ...]:
        """Return the tensors that this one is computed from."""
        return ()

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        """Return the same computation of other children, in the order of `children`."""
        assert not children
        return self

    @cached_property
    def tree_size(self) -> int:
        """The number of nodes of the tree; a tensor that is used twice counts twice."""
        return 1 + sum(child.tree_size for child in self.children())

    def nodes(self) -> Iterator[Tensor]:
        """Yield every tensor of the tree, children before the tensor that is computed from them."""
        for child in self.children():
            yield from child.nodes()
        yield self

    def run_blocks(self, block_elements: int, nbytes: int) -> int:
        """Return how many blocks are computed together: at least one.

        Args:
            block_elements: elements of a block.
            nbytes: bytes that a run may take of the widest tensor in the tree.
        """
        return max(1, 8 * nbytes // (self._widest * block_elements))

    def passed(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of leaves that are not needed after elements ``start:stop``.

        Elements are read in order: no later element reads what is yielded here.

        Yields:
            (leaf, first element, one past the last).
        """
        for child in self.children():
            yield from child.passed(start, stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of leaves that `read` reads for elements ``start:stop``, in order.

        Scratch files are left out, and so is what `reads_once` yields.

        Yields:
            (leaf, first element, one past the last).
        """
        for child in self.children():
            yield from child.reads(start, stop)

    def reads_once(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of leaves that are read once and held while all elements are computed.

        Yields:
            (leaf, first element, one past the last).
        """
        yield from ()

    @property
    def held_bytes(self) -> int:
        """The bytes of the value that `read` asks `evaluation.held` for; 0 if it asks for none.

        The estimate adds them up over a plan, and the sum is the limit of that cache: a kind that
        holds a value and does not say so makes the cache drop the values of others. Results of
        steps are counted with the steps.
        """
        return 0

    @property
    def held_in_turn(self) -> Hashable:
        """A key of the tensors whose values are needed in turn, at most two at once.

        None, by default, if the value is needed until the plan is done.
        """
        return None

    @property
    def own_milliseconds(self) -> float:
        """The time of one core for all elements: milliseconds, were there 2^20 times as many.

        It is 0 for what takes little beside reading. The time of a `Merged` depends on its method.
        """
        return 0.0

    def working_bytes(self, elements: int) -> float:
        """Return the bytes of buffers while so many elements are read at once."""
        return max((child.working_bytes(elements) for child in self.children()), default=0)

    @abstractmethod
    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        """Compute elements ``start:stop``, to the same bits however a tensor is split into ranges.

        Args:
            evaluation: the files, buffers and statistics to compute with.
            start: first element.
            stop: one past the last.
            out: bytes (uint8) to write to, as many as the elements have.

        Raises:
            Resumable: a file is missing, shorter than its header says, or not readable.
        """

    def floats(
        self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return elements ``start:stop`` of a tensor of floats as float32.

        Args:
            evaluation: the files, buffers and statistics to compute with.
            start: first element.
            stop: one past the last.
            out: an array to write to; by default a new one.

        Raises:
            Resumable: a file is missing, shorter than its header says, or not readable.
        """
        result = np.empty(stop - start, np.float32) if out is None else out
        for first in range(start, stop, PIECE_ELEMENTS):
            last = min(first + PIECE_ELEMENTS, stop)
            data = np.empty(nbytes(self.dtype, last - first), np.uint8)
            self.read(evaluation, first, last, data)
            round_to(as_vector(data, self.dtype), Vector(result[first - start : last - start]))
        return result

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the description of the tree that the ledger stores."""
