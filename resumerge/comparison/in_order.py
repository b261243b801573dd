"""Reading a tensor from its first element on, so that each block is computed once."""

from __future__ import annotations

import numpy as np

from resumerge.tensors import Merged, Tensor
from resumerge.tensors.dtypes import BITS, nbytes
from resumerge.tensors.evaluation import Evaluation


class InOrder:
    """The elements of a tensor, in their order.

    A merge computes whole blocks. If the requested elements end within a block, the other elements
    of that block are kept for the next call.

    Args:
        tensor: the tensor of one model: stored, or computed, such as a stage's.
        number: distinguishes the buffers of the tensors that one thread reads.
        evaluation: the means of reading, with the buffers of one thread.
    """

    def __init__(self, tensor: Tensor, number: int, evaluation: Evaluation) -> None:
        self._tensor, self._evaluation, self._name = tensor, evaluation, ("read", number)
        merged_nodes = (node for node in tensor.nodes() if isinstance(node, Merged))
        self._block = max((node.block_elements for node in merged_nodes), default=1)
        self._end = 0
        self._rest = np.empty(0, np.uint8)

    def next(self, elements: int) -> np.ndarray:
        """Return the bytes (uint8) of the next elements, valid until the next call.

        Raises:
            Resumable: a file cannot be read.
        """
        tensor, kept_bytes = self._tensor, self._rest
        wanted_bytes = nbytes(tensor.dtype, elements)
        if len(kept_bytes) < wanted_bytes:
            missing_elements = elements - 8 * len(kept_bytes) // BITS[tensor.dtype]
            end_of_block = -(-(self._end + missing_elements) // self._block) * self._block
            start, self._end = self._end, min(end_of_block, tensor.numel)
            size = len(kept_bytes) + nbytes(tensor.dtype, self._end - start)
            self._rest = self._evaluation.take(self._name, size)
            self._rest[: len(kept_bytes)] = kept_bytes
            tensor.read(self._evaluation.inner(), start, self._end, self._rest[len(kept_bytes) :])
        result, self._rest = self._rest[:wanted_bytes], self._rest[wanted_bytes:]
        return result
