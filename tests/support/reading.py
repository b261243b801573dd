"""Reading tensors that no method computes, as the engine reads operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from resumerge.tensors import Tensor
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.evaluation import Evaluation, Files, HeldValues


def evaluation(files: Files, limit: int = 0, buffers: Buffers | None = None) -> Evaluation:
    """Return an evaluation in which no tensor may be computed by a method.

    Args:
        files: the files of the tensors.
        limit: the bytes that are held from block to block.
        buffers: the buffers; None for new ones.
    """

    def no_method(tensor: Any) -> Any:
        raise AssertionError(f"{tensor.name} is computed by a method")

    return Evaluation(files, buffers or Buffers(), HeldValues(limit), no_method, {})


def read(with_: Evaluation, tensor: Tensor, start: int = 0, stop: int | None = None) -> bytes:
    """Return the bytes of elements ``start:stop``, and check that no others are written."""
    stop = tensor.numel if stop is None else stop
    size = nbytes(tensor.dtype, stop) - nbytes(tensor.dtype, start)
    buffer = np.full(size + 32, 0xAA, np.uint8)
    tensor.read(with_, start, stop, buffer[16 : 16 + size])
    assert set(buffer[:16]) == set(buffer[16 + size :]) == {0xAA}
    return buffer[16 : 16 + size].tobytes()
