"""The backend of methods that compute with torch: block by block, in float32, on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from resumerge.engine.evaluation.method_failures import (
    described,
    failures_named,
    wrong_result,
)
from resumerge.kernels import round_to
from resumerge.kernels.measurements import block_of_results
from resumerge.methods import Block, BlockRun, Method
from resumerge.methods.checked_answers import is_users
from resumerge.native import F32, Vector
from resumerge.tensors import Merged
from resumerge.tensors.buffers import Buffers


def use_one_thread() -> None:
    """Have torch use one thread: more threads would change the order of sums."""
    torch.set_num_threads(1)


class TorchBackend:
    """A backend that computes the blocks of one tensor with torch.

    Args:
        device: name of the device to compute on.

    Attributes:
        is_users: whether the method is a user's, so that what it returns is checked.
    """

    def __init__(self, merged: Merged, buffers: Buffers, device: str) -> None:
        assert isinstance(merged.merge_method, Method)
        self._merged, self._method, self._tensor = merged, merged.merge_method, merged.context
        self.is_users = is_users(merged.method)
        self._buffers = buffers
        self._device = torch.empty(0, device=device).device  # cuda:0, where cuda is asked for

    def map(
        self,
        function: Callable[[list[Tensor], Block], Any],
        inputs: list[Vector],
        run: BlockRun,
    ) -> list[Any]:
        """Return the partial results of a map function of `statistics`, one for each block."""
        return [function(tensors, block) for block, _, tensors in self._tensors(inputs, run)]

    def given(self, inputs: list[Vector], run: BlockRun) -> list[Vector]:
        """Return the vectors that a map function is given, which the next block overwrites."""
        size = min(run.size, run.length)
        return [self._buffers.vector(("float32", k), size, F32) for k in range(len(inputs))]

    def compute(self, inputs: list[Vector], run: BlockRun, statistics: Any, out: Vector) -> None:
        """Compute blocks into `out`, rounded to its type.

        Raises:
            Resumable: a user's method fails, or returns something that is no block.
        """
        for block, part, tensors in self._tensors(inputs, run):
            checked = self.is_users and _are_finite(tensors)
            with failures_named(self._merged):
                result = self._method.block(self._tensor, tensors, block, statistics)
            if not self._is_block(result, block):
                count = block.stop - block.start
                expected = f"Tensor, torch.float32, {self._device}, of shape {(count,)}"
                raise wrong_result(self._merged, [block], expected, described(result))
            if checked and not _are_finite([result]):
                expected = "finite numbers, as all inputs are"
                raise wrong_result(self._merged, [block], expected, "NaN or infinity")
            values = Vector(result.detach().cpu().contiguous().numpy())
            round_to(values, block_of_results(out, part))

    def _tensors(
        self, inputs: list[Vector], run: BlockRun
    ) -> Iterator[tuple[Block, slice, list[Tensor]]]:
        """Yield each block, its elements, and its inputs in float32, which may be overwritten."""
        for block, part in zip(run.in_tensor(), run.blocks()):
            yield block, part, [self._float32(k, vector, part) for k, vector in enumerate(inputs)]

    def _float32(self, k: int, vector: Vector, part: slice) -> Tensor:
        """Return a block of input number `k` as a float32 tensor on the device."""
        stored = Vector(vector.data[part], vector.dtype)
        wide = self._buffers.vector(("float32", k), len(stored), F32)
        round_to(stored, wide)
        return torch.from_numpy(wide.data).to(self._device)

    def _is_block(self, result: object, block: Block) -> bool:
        return (
            isinstance(result, Tensor)
            and result.shape == (block.stop - block.start,)
            and result.dtype == torch.float32
            and result.layout == torch.strided
            and result.device == self._device
        )


def _are_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors hold neither NaN nor infinity."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors)
