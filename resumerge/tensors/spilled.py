"""A tensor that is kept in a scratch file while other tensors are computed from it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.kernels import BlockRun
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.tensor import Tensor


class ScratchFile:
    """A file without a name. It is closed, and its space is freed, when this object is deleted.

    Args:
        fd: the open descriptor of the file.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)

    def read(self, offset: int, out: np.ndarray) -> None:
        """Fill `out` (uint8) with the bytes of the file, from an offset in bytes.

        Raises:
            OSError: the file cannot be read, or is too short.
        """
        view = out.data
        while view:
            count = os.preadv(self.fd, [view], offset)
            if count == 0:
                raise OSError(f"a scratch file ends at {offset} bytes")
            view, offset = view[count:], offset + count


@dataclass(frozen=True, eq=False)
class Spilled(Tensor):
    """A tensor that is computed once and read several times, from a scratch file.

    The preparation of an evaluation holds the file. If there is no file, the tensor is computed
    again, with the same bits. The file only saves time.

    Args:
        tensor: the tensor whose elements the scratch file holds.
        block_elements: elements of a block; several blocks are computed and written at once.
    """

    tensor: Tensor
    block_elements: int

    @classmethod
    def of(cls, tensor: Tensor, block_elements: int) -> Spilled:
        """Return a spilled tensor with the name, dtype and shape of `tensor`."""
        return cls(tensor.name, tensor.dtype, tensor.shape, tensor, block_elements)

    @property
    def blocks(self) -> int:
        """The number of blocks. An empty tensor has one empty block."""
        return max(1, -(-self.numel // self.block_elements))

    def block_run(self, indices: range) -> BlockRun:
        """Return consecutive blocks, which are computed and written together."""
        return BlockRun.of(self.numel, self.block_elements, indices)

    def children(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    def with_children(self, children: tuple[Tensor, ...]) -> Tensor:
        [tensor] = children
        return replace(self, tensor=tensor)

    def no_longer_read(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        yield from self.tensor.no_longer_read(start, stop)

    def reads(self, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield no range, because the tensor is read from a scratch file."""
        yield from ()

    def working_bytes(self, elements: int) -> float:
        """Return the bytes of buffers, including the one from which the scratch file is written."""
        return nbytes(self.dtype, elements) + self.tensor.working_bytes(elements)

    def read(self, evaluation: Evaluation, start: int, stop: int, out: np.ndarray) -> None:
        scratch = evaluation.preparation.get(self)
        if scratch is None:
            self.tensor.read(evaluation, start, stop, out)
        else:
            scratch.read(nbytes(self.dtype, start), out)

    def as_json(self) -> dict[str, Any]:
        """Return the description of the tensor. The scratch file does not change its bits."""
        return self.tensor.as_json()


def spilled_in(tensor: Tensor) -> Iterator[Spilled]:
    """Yield the spilled tensors in a tree, each once, children first."""
    return (node for node in dict.fromkeys(tensor.nodes()) if isinstance(node, Spilled))
