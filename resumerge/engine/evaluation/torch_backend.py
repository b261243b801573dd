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
    """Make torch use one thread. More threads would change the order of sums."""
    torch.set_num_threads(1)


class TorchBackend:
    """A backend that computes the blocks of one tensor with torch.

    Args:
        merged: the tensor, whose merge method computes with torch.
        buffers: the evaluator's buffers, of which every thread has its own.
        device: the name of the device to compute on.

    Attributes:
        is_users: whether the method is a user's, whose results have to be checked.
    """

    def __init__(self, merged: Merged, buffers: Buffers, device: str) -> None:
        assert isinstance(merged.merge_method, Method)
        self._merged, self._method, self._tensor = merged, merged.merge_method, merged.context
        self.is_users = is_users(merged.method)
        self._buffers = buffers
        self._device = torch.empty(0, device=device).device  # with an index: cuda:0 for cuda

    def map(
        self,
        function: Callable[[list[Tensor], Block], Any],
        inputs: list[Vector],
        run: BlockRun,
    ) -> list[Any]:
        """Call a map function of `statistics` for each block, and return the partial results."""
        return [function(tensors, block) for block, _, tensors in self._tensors(inputs, run)]

    def given(self, inputs: list[Vector], run: BlockRun) -> list[Vector]:
        """Return the vectors that a map function receives, which the next block overwrites."""
        size = min(run.size, run.length)
        return [self._buffers.vector(("float32", k), size, F32) for k in range(len(inputs))]

    def compute(self, inputs: list[Vector], run: BlockRun, statistics: Any, out: Vector) -> None:
        """Compute blocks into `out`, rounded to the type of `out`.

        Raises:
            Resumable: a user's method fails, or does not return a valid block.
        """
        for block, part, tensors in self._tensors(inputs, run):
            checks_values = self.is_users and _are_finite(tensors)
            with failures_named(self._merged):
                result = self._method.block(self._tensor, tensors, block, statistics)
            if not self._is_block(result, block):
                element_count = block.stop - block.start
                expected_result = (
                    f"Tensor, torch.float32, {self._device}, of shape {(element_count,)}"
                )
                raise wrong_result(self._merged, [block], expected_result, described(result))
            if checks_values and not _are_finite([result]):
                expected_result = "finite numbers, as all inputs are"
                raise wrong_result(self._merged, [block], expected_result, "NaN or infinity")
            result_vector = Vector(result.detach().cpu().contiguous().numpy())
            round_to(result_vector, block_of_results(out, part))

    def _tensors(
        self, inputs: list[Vector], run: BlockRun
    ) -> Iterator[tuple[Block, slice, list[Tensor]]]:
        """Yield each block, its elements, and its inputs in float32, which may be overwritten."""
        for block, part in zip(run.in_tensor(), run.blocks()):
            yield block, part, [self._float32(k, vector, part) for k, vector in enumerate(inputs)]

    def _float32(self, k: int, vector: Vector, part: slice) -> Tensor:
        """Return a block of input number `k` as a float32 tensor on the device."""
        stored_block = Vector(vector.data[part], vector.dtype)
        float32_block = self._buffers.vector(("float32", k), len(stored_block), F32)
        round_to(stored_block, float32_block)
        return torch.from_numpy(float32_block.data).to(self._device)

    def _is_block(self, result: object, block: Block) -> bool:
        return (
            isinstance(result, Tensor)
            and result.shape == (block.stop - block.start,)
            and result.dtype == torch.float32
            and result.layout == torch.strided
            and result.device == self._device
        )


def _are_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors contain neither NaN nor infinity."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors)
