"""A tensor that is stored in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from resumerge.native import read_ranges
from resumerge.tensors.dtypes import BITS, nbytes
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.stored.strided import read_strided
from resumerge.tensors.tensor import Tensor


@dataclass(frozen=True)
class Stored(Tensor):
    """A tensor that is stored in a file.

    Args:
        file: path of the file, relative to the source's folder.
        offset: offset of the first byte from the start of the file, in bytes.
        strides: distance between neighbours in each dimension, in elements, 0 or more; None if
            the elements are consecutive.
        source: number of the tensor's source in the plan.
    """

    file: str
    offset: int
    strides: tuple[int, ...] | None = None
    source: int = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are consecutive in the file."""
        return self.strides is None

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield self, start, stop

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield self, start, stop

    def byte_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return (offset in the file, length) of elements ``start:stop`` of a contiguous tensor."""
        skipped_bytes = nbytes(self.dtype, start)
        return self.offset + skipped_bytes, nbytes(self.dtype, stop) - skipped_bytes

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        files = evaluation.files
        if self.strides is None:
            offset = self.offset + nbytes(self.dtype, start)
            descriptor = files.descriptor(self)
            if descriptor is None or not read_ranges([(descriptor, offset, out, 0)]):
                files.fill(self, offset, out.data)  # raises an error that names the file
            return
        fill, elements = partial(files.fill, self), out.view(f"u{BITS[self.dtype] // 8}")
        read_strided(fill, self.offset, self.shape, self.strides, start, stop, elements)

    def as_json(self) -> dict[str, Any]:
        return {"source": self.source, "tensor": self.name}


def stored_in(tensor: Tensor) -> Iterator[Stored]:
    """Yield the stored tensors that a tensor is read from, in the order of its operands."""
    for node in tensor.nodes():
        if isinstance(node, Stored):
            yield node


def with_stored(tensor: Tensor, change: Callable[[Stored], Stored]) -> Tensor:
    """Return a tensor with its stored tensors replaced; the tensor itself if all are kept.

    Args:
        tensor: the tree whose leaves are replaced.
        change: a function that returns the replacement of a stored tensor, or the same tensor.
    """
    if isinstance(tensor, Stored):
        return change(tensor)
    children = tensor.children()
    new_children = tuple(with_stored(child, change) for child in children)
    is_unchanged = all(new is child for new, child in zip(new_children, children))
    return tensor if is_unchanged else tensor.with_children(new_children)
