"""The base class of all tensors of the algebra: a name, a dtype, a shape, and children."""

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
"""The elements that `Tensor.floats` reads at once."""


@dataclass(frozen=True, eq=False)
class Tensor(ABC):
    """A tensor that is stored in a file, generated, or computed from a tree of other tensors.

    Some subclasses compare fields: two of their tensors are equal if all fields are equal. A tensor
    of the other subclasses (``eq=False``) equals only itself, because held values are looked up by
    the identity of their tensor.

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
        # `cached_property` would need a dict for each of tens of thousands of tensors.
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
        """Whether torch has to be loaded for the tensor, which takes a second and 200 MB."""
        return self.uses_torch

    @property
    def unrounded(self) -> Tensor:
        """The tensor before a merge rounds it as an input; by default the tensor itself."""
        return self

    @property
    def exact(self) -> Tensor:
        """The tensor as a merge reads it: before its model rounds it to the type of its files.

        By default, this is the tensor itself. For a weight that an adapter changes, it is a tensor
        in float32 or wider.
        """
        return self

    @property
    def compared_models(self) -> tuple[str, ...]:
        """The models that measured changes refer to, as text; empty if no changes are measured.

        Changes are measured from the first model.
        """
        return ()

    @property
    def scheme_measured(self) -> tuple[str, int]:
        """The scheme that a measured tensor is quantised in, and the number of its elements.

        By default, the name is empty and the number is 0, because the tensor is not quantised.
        """
        return "", 0

    def children(self) -> tuple[Tensor, ...]:
        """Return the tensors that this one is computed from."""
        return ()

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        """Return this tensor with other children, given in the order of `children`."""
        assert not children
        return self

    @cached_property
    def tree_size(self) -> int:
        """The number of nodes of the tree. A tensor that is used twice counts twice."""
        return 1 + sum(child.tree_size for child in self.children())

    def nodes(self) -> Iterator[Tensor]:
        """Yield every tensor of the tree, children before the tensor that is computed from them."""
        for child in self.children():
            yield from child.nodes()
        yield self

    def blocks_at_once(self, block_elements: int, nbytes: int) -> int:
        """Return the number of blocks that one call computes, at least one.

        Args:
            block_elements: elements of a block of this tensor.
            nbytes: the most bytes of these blocks, in the widest tensor of the tree.
        """
        return max(1, 8 * nbytes // (self._widest * block_elements))

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of leaves that are not needed after elements ``start:stop`` are read.

        Elements are read in order, and no later element reads the yielded ranges.

        Yields:
            (leaf, first element, one past the last).
        """
        for child in self.children():
            yield from child.no_longer_read(start, stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the ranges of leaves that `read` reads for elements ``start:stop``, in order.

        Ranges of scratch files, and ranges that `reads_once` yields, are not included.

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
        """The bytes of the value that `read` keeps in `evaluation.held`; 0 if it keeps no value.

        The estimate sums these bytes over a plan, and the sum is the limit of `evaluation.held`. If
        a subclass keeps a value but declares 0 bytes, the cache drops values of other tensors. The
        results of steps are counted with the steps.
        """
        return 0

    @property
    def held_in_turn(self) -> Hashable:
        """A key shared by tensors whose held values are needed in turn, at most two at once.

        None (the default) means that the value is needed until the plan is done.
        """
        return None

    @property
    def own_milliseconds(self) -> float:
        """The time in which one core computes all elements, in milliseconds times 2^20.

        If 2^20 elements take m milliseconds, this is ``m * numel``. It is 0 if computing takes
        little time compared with reading. The time of a `Merged` depends on its method and is not
        included.
        """
        return 0.0

    def working_bytes(self, elements: int) -> float:
        """Return the bytes of the buffers that `read` needs for this number of elements."""
        return max((child.working_bytes(elements) for child in self.children()), default=0)

    @abstractmethod
    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        """Compute elements ``start:stop``. Their bits do not depend on how the tensor is split.

        Args:
            evaluation: the files, buffers and statistics to compute with.
            start: first element.
            stop: one past the last.
            out: the array of bytes (uint8) to write to. Its length is that of the elements.

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
            out: a float32 array to write to; None to make a new array.

        Raises:
            Resumable: a file is missing, shorter than its header says, or not readable.
        """
        elements = np.empty(stop - start, np.float32) if out is None else out
        for piece_start in range(start, stop, PIECE_ELEMENTS):
            piece_stop = min(piece_start + PIECE_ELEMENTS, stop)
            raw = np.empty(nbytes(self.dtype, piece_stop - piece_start), np.uint8)
            self.read(evaluation, piece_start, piece_stop, raw)
            round_to(
                as_vector(raw, self.dtype),
                Vector(elements[piece_start - start : piece_stop - start]),
            )
        return elements

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the description of the tree that the ledger stores."""
