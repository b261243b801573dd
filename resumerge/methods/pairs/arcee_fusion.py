"""Arcee fusion: only the most important changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import Block, Scan, scan_mapped
from resumerge.methods.base import BlockCost, Method, Paper, TensorContext


class ArceeFusion(Method):
    """``base + d`` where an element of ``d = x - base`` is important, else the base.

    The importance of an element is ``|d| * KL(softmax(x) || softmax(base))``, the softmax and the
    divergence being those of its row (vector along the last dimension), in float32. It has to reach
    ``median + 1.5 * (upper quartile - lower quartile)`` of the whole tensor's importances. The
    quartiles are exact and lie on elements: of n, the ``floor(q * (n-1))``-th from below.
    """

    name = "arcee_fusion"
    summary = "the other model's elements where the two differ most, else the base's"
    papers = (
        Paper(
            "Arcee's MergeKit: a toolkit for merging large language models",
            "https://arxiv.org/abs/2403.13257",
        ),
    )
    base = "required"
    fewest = 2
    most = 2
    torch_cost = BlockCost(13.0, scratch=20.0)

    def statistics_bytes(self, tensor: TensorContext) -> int:
        rows = tensor.numel // max(1, self._row(tensor))
        return 4 * rows + kernels.selection_bytes(tensor.numel, [[0.25, 0.5, 0.75]])

    def passes(self, tensor: TensorContext) -> int:
        return 4

    def row_elements(self, tensor: TensorContext) -> int | None:
        return self._row(tensor)

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> tuple[Any, float]:
        """The divergence of each row, and the threshold of importance."""
        row = self._row(tensor)
        divergences = kernels.concatenate(
            scan(lambda x, block: kernels.row_divergences(*self._pair(tensor, x), row)),
            tensor.numel // row,
        )
        last = tensor.numel - 1
        ranks = [tensor.numel - share * last // 4 for share in (1, 2, 3)]

        def importance(x: list[Any], block: Block) -> dict[int, Any]:
            return {0: kernels.as_native(self._importance(tensor, x, block, divergences))}

        keys = kernels.order_statistics(
            {0: ranks}, tensor.numel, scan_mapped(scan, importance), kernels.ordered_bits
        )
        low, median, high = (np.float32(kernels.float_of_ordered_bits(key)) for key in keys[0])
        return divergences, float(median + np.float32(1.5) * (high - low))

    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        divergences, threshold = statistics
        kept = self._importance(tensor, inputs, block, divergences) >= threshold
        other, base = self._pair(tensor, inputs)
        return kernels.add_scaled(base, kernels.apply_mask(other.sub_(base), kept))

    def _importance(
        self, tensor: TensorContext, inputs: list[Any], block: Block, divergences: Any
    ) -> Any:
        row = self._row(tensor)
        return kernels.importance(*self._pair(tensor, inputs), divergences, row, block.start)

    def _pair(self, tensor: TensorContext, inputs: list[Any]) -> tuple[Any, Any]:
        return inputs[tensor.others[0]], inputs[tensor.base]  # type: ignore[index]

    def _row(self, tensor: TensorContext) -> int:
        return tensor.shape[-1] if tensor.shape else 1
